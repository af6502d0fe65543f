package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func fanOut(n int) {
	expected := sumOfWork(16, 200)
	for range n {
		var answers [16]uint64
		var all sync.WaitGroup
		for backend := range answers {
			all.Go(func() { answers[backend] = work(200, backend) })
		}
		all.Wait()
		var sum uint64
		for _, answer := range answers {
			sum += answer
		}
		check(sum == expected)
	}
}

func hedged(n int) {
	for i := range n {
		answers := make(chan int, 3)
		for replica := range 3 {
			go func() {
				work(100, replica)
				answers <- i
			}()
		}
		check(<-answers == i)
	}
}

func deadline(n int) {
	const callers = 500
	var late atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range max(n/callers, 1) {
				answered := make(chan int, 1)
				go func() {
					if isEach(i, 16) && !isEach(i, 32) {
						time.Sleep(10 * time.Millisecond)
					}
					answered <- i
				}()
				limit := time.NewTimer(5 * time.Millisecond)
				select {
				case answer := <-answered:
					check(answer == i)
				case <-limit.C:
					late.Add(1)
				}
				limit.Stop()
			}
		})
	}
	all.Wait()
	check(int(late.Load()) <= n)
}

func requestTree(n int) {
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		answers := make(chan int, 1)
		var all sync.WaitGroup
		for branch := range 4 {
			all.Go(func() {
				for leaf := range 4 {
					all.Go(func() {
						if branch == 0 && leaf == 0 {
							answers <- i
							return
						}
						answered := make(chan int, 1)
						select {
						case <-answered:
							panic("nobody answers")
						case <-ctx.Done():
						}
					})
				}
			})
		}
		check(<-answers == i)
		cancel()
		all.Wait()
	}
}

func abort(n int) {
	for range n / 100 {
		ctx, cancel := context.WithCancel(context.Background())
		receive := make(chan int)
		var ended atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				select {
				case <-receive:
				case <-ctx.Done():
					ended.Add(1)
				}
			})
		}
		runtime.Gosched()
		cancel()
		all.Wait()
		check(ended.Load() == 100)
	}
}

// As x/sync has it.
type errGroup struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
	once   sync.Once
	err    error
}

func (g *errGroup) Go(f func() error) {
	g.all.Add(1)
	go func() {
		defer g.all.Done()
		if err := f(); err != nil {
			g.once.Do(func() {
				g.err = err
				g.cancel()
			})
		}
	}()
}

func (g *errGroup) Wait() error {
	g.all.Wait()
	g.cancel()
	return g.err
}

var errTask = errors.New("a task failed")

func errGroups(n int) {
	for range n {
		ctx, cancel := context.WithCancel(context.Background())
		group := errGroup{cancel: cancel}
		for task := range 32 {
			group.Go(func() error {
				switch {
				case task < 16:
					return nil
				case task == 16:
					return errTask
				}
				<-ctx.Done()
				return nil
			})
		}
		check(group.Wait() == errTask)
	}
}

func call(deep int) int {
	if deep == 0 {
		return 0
	}
	value := make(chan int, 1)
	go func() { value <- call(deep - 1) }()
	return 1 + <-value
}

func spawnChain(n int) {
	for range n / 100 {
		check(call(100) == 100)
	}
}

type crawler struct {
	lock    sync.Mutex
	seen    map[int]struct{}
	permits chan struct{}
	pages   sync.WaitGroup
}

func (c *crawler) visit(page int) {
	c.lock.Lock()
	_, seen := c.seen[page]
	c.seen[page] = struct{}{}
	c.lock.Unlock()
	if seen {
		return
	}
	c.permits <- struct{}{}
	runtime.Gosched()
	runtime.Gosched()
	work(100, page)
	<-c.permits
	for child := page*8 + 1; child < page*8+9 && child < pagesOfCrawl; child++ {
		c.pages.Go(func() { c.visit(child) })
	}
}

func crawl(n int) {
	for range n {
		c := crawler{seen: make(map[int]struct{}), permits: make(chan struct{}, 16)}
		c.visit(0)
		c.pages.Wait()
		check(len(c.seen) == pagesOfCrawl)
	}
}

type request struct {
	id     int
	answer chan int
}

func mixed(n int) {
	var lock sync.RWMutex
	table := make(map[int]int)
	for key := range 1000 {
		table[key] = key + 7
	}
	requests := make(chan request, 64)
	for range 8 {
		go func() {
			for request := range requests {
				id, key := request.id, request.id%1000
				lock.RLock()
				value := table[key]
				lock.RUnlock()
				if isEach(id, 100) {
					lock.Lock()
					table[key] = value
					lock.Unlock()
				}
				if isEach(id, 8) {
					var parts [4]uint64
					var all sync.WaitGroup
					for part := range parts {
						all.Go(func() { parts[part] = work(100, part) })
					}
					all.Wait()
					check(parts[0]+parts[1]+parts[2]+parts[3] != 0)
				}
				if isEach(id, 512) {
					time.Sleep(time.Millisecond)
				}
				if isEach(id, 256) {
					block()
				}
				request.answer <- value
			}
		}()
	}
	var clients sync.WaitGroup
	each := n / 16
	for client := range 16 {
		clients.Go(func() {
			for id := client * each; id < (client+1)*each; id++ {
				answer := make(chan int, 1)
				requests <- request{id, answer}
				limit := time.NewTimer(time.Second)
				select {
				case value := <-answer:
					check(value == id%1000+7)
				case <-limit.C:
					panic("no answer")
				}
				limit.Stop()
			}
		})
	}
	clients.Wait()
	close(requests)
}
