package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type hop struct {
	pick pick
	left int
}

func graph(members, room, messages, hops int) {
	boxes := make([]chan hop, members)
	for i := range boxes {
		boxes[i] = make(chan hop, room)
	}
	done := make(chan struct{}, messages)
	var count atomic.Int64
	var all sync.WaitGroup
	for _, mail := range boxes {
		all.Go(func() {
			mine := 0
			for {
				hop := <-mail
				if hop.left == 0 {
					break
				}
				mine++
				hop.left--
				if hop.left == 0 {
					done <- struct{}{}
				} else {
					to := hop.pick.below(members)
					boxes[to] <- hop
				}
			}
			count.Add(int64(mine))
		})
	}
	each := max(hops/messages, 1)
	for message := range messages {
		pick := pickOf(message)
		to := pick.below(members)
		boxes[to] <- hop{pick, each}
	}
	for range messages {
		<-done
	}
	for _, mailbox := range boxes {
		mailbox <- hop{}
	}
	all.Wait()
	check(int(count.Load()) == each*messages)
}

func owner(n int) {
	const callers = 16
	type call struct {
		number int
		answer chan int
	}
	calls := make(chan call, 64)
	total := make(chan int)
	go func() {
		sum := 0
		for call := range calls {
			sum += call.number
			call.answer <- sum
		}
		total <- sum
	}()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			answer, last := make(chan int, 1), 0
			for number := range n / callers {
				calls <- call{number, answer}
				sum := <-answer
				check(sum >= last)
				last = sum
			}
		})
	}
	all.Wait()
	close(calls)
	check(<-total == callers*sumBelow(n/callers))
}

const fastMembers, slowMembers = 28, 4

type message struct {
	number int
	_      [7]int
}

func pubSub(n int) {
	var fast, slow []chan *message
	var all sync.WaitGroup
	var got atomic.Int64
	for range fastMembers {
		messages := make(chan *message, 64)
		fast = append(fast, messages)
		all.Go(func() {
			sum := 0
			for message := range messages {
				sum += message.number
			}
			check(sum == sumBelow(n))
		})
	}
	for range slowMembers {
		messages := make(chan *message, 64)
		slow = append(slow, messages)
		all.Go(func() {
			for range messages {
				got.Add(1 + takeRest(messages))
				time.Sleep(time.Millisecond)
			}
		})
	}
	lost := 0
	for number := range n {
		message := &message{number: number}
		for _, member := range fast {
			member <- message
		}
		for _, member := range slow {
			select {
			case member <- message:
			default:
				lost++
			}
		}
	}
	for _, member := range slices.Concat(fast, slow) {
		close(member)
	}
	all.Wait()
	check(int(got.Load())+lost == slowMembers*n)
}

func takeRest(messages chan *message) (taken int64) {
	for {
		select {
		case _, more := <-messages:
			if !more {
				return
			}
			taken++
		default:
			return
		}
	}
}

func pipeline(n int) {
	source := make(chan int, 16)
	last := source
	for _, stage := range []struct{ steps, goroutines int }{{20, 1}, {100, 1}, {400, 4}, {50, 1}} {
		input, out := last, make(chan int, 16)
		var all sync.WaitGroup
		for range stage.goroutines {
			all.Go(func() {
				for item := range input {
					work(stage.steps, item)
					out <- item
				}
			})
		}
		go func() {
			all.Wait()
			close(out)
		}()
		last = out
	}
	go func() {
		for item := range n {
			source <- item
		}
		close(source)
	}()
	sum := 0
	for item := range last {
		sum += item
	}
	check(sum == sumBelow(n))
}

func largeValues(n int) {
	values := make(chan [128]int, 16)
	go func() {
		var value [128]int
		for i := range n {
			value[0], value[127] = i, i
			values <- value
		}
		close(values)
	}()
	sum := 0
	for value := range values {
		sum += value[127]
	}
	check(sum == sumBelow(n))
}

func workerPool(n int) {
	jobs, results := make(chan int, 64), make(chan int, 64)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for job := range jobs {
				work(100, job)
				results <- job
			}
		})
	}
	go func() {
		for job := range n {
			jobs <- job
		}
		close(jobs)
		workers.Wait()
		close(results)
	}()
	sum := 0
	for result := range results {
		sum += result
	}
	check(sum == sumBelow(n))
}

func select128(n int) {
	a, b := make(chan int, 128), make(chan int, 128)
	for _, channel := range []chan int{a, b} {
		go func() {
			for i := range n / 2 {
				channel <- i
			}
		}()
	}
	sum := 0
	for range n / 2 * 2 {
		select {
		case i := <-a:
			sum += i
		case i := <-b:
			sum += i
		}
	}
	check(sum == 2*sumBelow(n/2))
}

func rings(procs, rounds int) float64 {
	const members = 8
	count := 4 * procs
	ends := make(chan time.Duration, count)
	start := time.Now()
	var firsts []chan int
	for range count {
		var ring [members]chan int
		for i := range ring {
			ring[i] = make(chan int, 1)
		}
		firsts = append(firsts, ring[0])
		for member := range members {
			own, next := ring[member], ring[(member+1)%members]
			go func() {
				for round := range rounds {
					check(<-own == round)
					switch {
					case member+1 < members:
						next <- round
					case round+1 < rounds:
						next <- round + 1
					default:
						ends <- time.Since(start)
					}
				}
			}()
		}
	}
	startOfAll := time.Since(start)
	for _, first := range firsts {
		first <- 0
	}
	took := make([]time.Duration, count)
	for i := range took {
		took[i] = <-ends - startOfAll
	}
	slices.Sort(took)
	return took[count-1].Seconds() / took[0].Seconds()
}

func parkedOwn(n int) found {
	var arrived atomic.Int64
	var all sync.WaitGroup
	channels := make([]chan struct{}, n)
	cpu, start := cpuTime(), time.Now()
	for i := range channels {
		channel := make(chan struct{})
		channels[i] = channel
		all.Add(1)
		go func() {
			arrived.Add(1)
			<-channel
			all.Done()
		}()
	}
	for int(arrived.Load()) < n {
		runtime.Gosched()
	}
	what := perOp(time.Since(start), n)
	what["cpu"] = (cpuTime() - cpu) / float64(n)
	for _, channel := range channels {
		close(channel)
	}
	all.Wait()
	return what
}
