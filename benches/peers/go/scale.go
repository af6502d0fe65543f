package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The curves of benches/scale.

func curves(workload string, procs, size int, or func(int) int) found {
	n := or(100_000)
	switch workload {
	case "scale_yield":
		return scaleYields(size, n)
	case "scale_ping_pong":
		return scalePingPong(size, n)
	case "scale_parked_one":
		return scaleParked(size, n, true)
	case "scale_parked_own":
		return scaleParked(size, n, false)
	case "scale_timer_stop":
		return scaleTimerStop(size, n)
	case "scale_timer_fire":
		return scaleTimerFire(size, n)
	case "scale_select", "scale_select_dynamic":
		return scaleSelect(size, n)
	case "scale_channels":
		return scaleChannels(size, n)
	case "scale_procs_yield":
		return scaleYields(2*procs, n)
	case "scale_procs_transfer":
		return scaleTransfer(uint64(2*procs), uint64(n))
	}
	return nil
}

// The start of all of a measurement, which is the arrival of the last one, and the end of all.
type lines struct {
	of            int64
	arrived, left atomic.Int64
	start, end    time.Time
}

func (l *lines) arrive() {
	if l.arrived.Add(1) == l.of {
		l.start = time.Now()
	}
	for l.arrived.Load() < l.of {
		runtime.Gosched()
	}
}

func (l *lines) leave() {
	if l.left.Add(1) == l.of {
		l.end = time.Now()
	}
}

func (l *lines) perOp(n int) found { return perOp(l.end.Sub(l.start), n) }

func scaleYields(size, n int) found {
	l, rounds := &lines{of: int64(size)}, max(n/size, 1)
	var group sync.WaitGroup
	for range size {
		group.Go(func() {
			l.arrive()
			for range rounds {
				runtime.Gosched()
			}
			l.leave()
		})
	}
	group.Wait()
	check(int(l.left.Load()) == size)
	return l.perOp(size * rounds)
}

func scalePingPong(size, n int) found {
	pairs := max(size/2, 1)
	l, rounds := &lines{of: int64(pairs)}, max(n/pairs, 1)
	var group sync.WaitGroup
	var total atomic.Int64
	for range pairs {
		ping, pong := make(chan int), make(chan int)
		group.Go(func() {
			for i := range ping {
				pong <- i + 1
			}
		})
		group.Go(func() {
			l.arrive()
			sum := 0
			for i := range rounds {
				ping <- i
				sum += <-pong
			}
			l.leave()
			total.Add(int64(sum))
			close(ping)
		})
	}
	group.Wait()
	check(int(total.Load()) == pairs*(sumBelow(rounds)+rounds))
	return l.perOp(pairs * rounds)
}

func scaleParked(size, n int, one bool) found {
	var create, wake time.Duration
	rounds := max(n/size, 1)
	for range rounds {
		var arrived, sum atomic.Int64
		var group sync.WaitGroup
		start := time.Now()
		shared := make(chan int)
		own := make([]chan int, 0, size)
		for range size {
			channel := shared
			if !one {
				channel = make(chan int)
			}
			own = append(own, channel)
			group.Go(func() {
				arrived.Add(1)
				sum.Add(int64(<-channel))
			})
		}
		for int(arrived.Load()) < size {
			runtime.Gosched()
		}
		created := time.Now()
		for i, channel := range own {
			channel <- i
		}
		group.Wait()
		check(int(sum.Load()) == sumBelow(size))
		create += created.Sub(start)
		wake += time.Since(created)
	}
	each := func(took time.Duration) float64 { return float64(took.Nanoseconds()) / float64(size*rounds) }
	return found{"value": each(create), "wake": each(wake)}
}

func scaleTimerStop(size, n int) found {
	p := pickOf(size)
	arm := func() *time.Timer { return time.AfterFunc(time.Hour+time.Duration(p.below(int(time.Hour))), func() {}) }
	pending := make([]*time.Timer, size)
	for i := range pending {
		pending[i] = arm()
	}
	what := timed(n, func(n int) {
		for range n {
			check(arm().Stop())
		}
	})
	for _, timer := range pending {
		check(timer.Stop())
	}
	return what
}

func scaleTimerFire(size, n int) found {
	p, rounds := pickOf(size), max(n/size, 1)
	var fired atomic.Int64
	before := cpuTime()
	for range rounds {
		var group sync.WaitGroup
		group.Add(size)
		for range size {
			due := time.Duration(1_000_000 + size*500 + p.below(size*1_000))
			time.AfterFunc(due, func() {
				fired.Add(1)
				group.Done()
			})
		}
		group.Wait()
	}
	check(int(fired.Load()) == size*rounds)
	return found{"value": (cpuTime() - before) / float64(size*rounds)}
}

func scaleSelect(size, n int) found {
	channels, cases := make([]chan int, size), make([]reflect.SelectCase, size)
	for i := range channels {
		channels[i] = make(chan int)
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(channels[i])}
	}
	what := timed(n, func(n int) {
		go func() {
			p := pickOf(n)
			for i := range n {
				channels[p.below(size)] <- i
			}
		}()
		sum := 0
		for range n {
			_, value, _ := reflect.Select(cases)
			sum += int(value.Int())
		}
		check(sum == sumBelow(n))
	})
	what["value"] = what["value"].(float64) / float64(size)
	return what
}

func scaleChannels(size, n int) found {
	channels := make([]chan int, size)
	for i := range channels {
		channels[i] = make(chan int, 128)
	}
	return timed(n, func(n int) {
		go func() {
			at := 0
			for i := range n {
				channels[at] <- i
				if at++; at == size {
					at = 0
				}
			}
		}()
		sum, at := 0, 0
		for range n {
			sum += <-channels[at]
			if at++; at == size {
				at = 0
			}
		}
		check(sum == sumBelow(n))
	})
}

func scaleTransfer(size, n uint64) found {
	var round, acknowledged, led atomic.Uint64
	round.Store(1)
	var group sync.WaitGroup
	start := time.Now()
	for me := range size {
		group.Go(func() {
			for seen := uint64(0); ; runtime.Gosched() {
				now := round.Load()
				if now > n {
					return
				}
				if now == seen {
					continue
				}
				seen = now
				if now%size != me {
					acknowledged.Add(1)
					continue
				}
				for acknowledged.Load() < size-1 {
				}
				acknowledged.Store(0)
				round.Store(now + 1)
				led.Add(1)
			}
		})
	}
	group.Wait()
	check(led.Load() == n)
	return found{"value": micros(time.Since(start)) / float64(n)}
}

// The cells of benches/scale, "Tails": a server that is probed beside something.

const probes, stampBytes = 64, 8

func tails(beside string, or func(int) int) found {
	listen := func() *net.TCPListener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		return listener.(*net.TCPListener)
	}
	probed, busy := listen(), listen()
	port := func(listener *net.TCPListener) int { return listener.Addr().(*net.TCPAddr).Port }
	fmt.Println(port(probed), port(busy))
	go echo(busy, 4096)
	each := or(50_000) / probes
	streams := make([]net.Conn, probes)
	for i := range streams {
		stream, err := probed.Accept()
		must(err)
		streams[i] = stream
	}
	waits := make([][]time.Duration, probes)
	var all sync.WaitGroup
	for i, stream := range streams {
		all.Go(func() {
			stamp := make([]byte, stampBytes)
			for range each {
				_, err := io.ReadFull(stream, stamp)
				must(err)
				sent := int64(binary.LittleEndian.Uint64(stamp))
				waits[i] = append(waits[i], time.Duration(max(time.Now().UnixNano()-sent, 0)))
			}
		})
	}
	begin(beside)
	all.Wait()
	waited := slices.Concat(waits...)
	slices.Sort(waited)
	at := func(share float64) float64 { return micros(waited[int(float64(len(waited)-1)*share)]) }
	return found{"value": at(0.999), "p50": at(0.5), "p99": at(0.99), "max": at(1), "probes": len(waited)}
}

func compute(took time.Duration) {
	for begun := time.Now(); time.Since(begun) < took; {
	}
}

// Starts so many that do this for ever.
func always(goroutines int, it func()) {
	for range goroutines {
		go func() {
			for {
				it()
			}
		}()
	}
}

func begin(beside string) {
	switch beside {
	case "alone", "connections": // The connections are the load's.
	case "compute":
		always(100, func() {
			compute(100 * time.Microsecond)
			runtime.Gosched()
		})
	case "storm":
		for range 2 {
			go stormSpawner(1500, new(atomic.Int64), new(atomic.Bool))
		}
	case "timers":
		always(100, func() { time.Sleep(10 * time.Millisecond) })
	case "hog":
		always(1, func() {})
	case "blocking", "blocking_marked":
		always(1, func() {
			sleep := syscall.Timespec{Nsec: 1_000_000}
			syscall.Nanosleep(&sleep, nil)
			runtime.Gosched()
		})
	default:
		panic(beside)
	}
}
