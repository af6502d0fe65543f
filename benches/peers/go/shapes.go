package main

import (
	"runtime"
	"slices"
	"syscall"
	"time"
)

// What the shapes of shapes.md share, as in peer-common.

const repetitions = 5

func median(figures []float64) found {
	slices.Sort(figures)
	return found{"value": figures[len(figures)/2]}
}

func measured(n int, figure func(n int) float64) found {
	figure(max(n/10, 1))
	figures := make([]float64, repetitions)
	for i := range figures {
		figures[i] = figure(n)
	}
	return median(figures)
}

func repeated(n int, run func(int)) found { return repeatedBy(n, n, run) }

// For so many operations that are run by n.
func repeatedBy(n, of int, run func(int)) found {
	return measured(n, func(n int) float64 {
		start := time.Now()
		run(n)
		return float64(time.Since(start).Nanoseconds()) / float64(of)
	})
}

func cpuTime() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}

func repeatedCPU(n int, run func(int)) found {
	return measured(n, func(n int) float64 {
		before := cpuTime()
		run(n)
		return (cpuTime() - before) / float64(n)
	})
}

func micros(took time.Duration) float64 { return float64(took.Nanoseconds()) / 1e3 }

type pick uint64

func pickOf(number int) pick { return pick((uint64(number)+1)*0x9E3779B97F4A7C15 | 1) }

func (p *pick) next() uint64 {
	x := uint64(*p)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*p = pick(x)
	return x
}

func (p *pick) below(end int) int { return int(p.next() % uint64(end)) }

//go:noinline
func work(steps, seed int) uint64 {
	p := pick(seed | 1)
	for range steps {
		p.next()
	}
	return uint64(p)
}

func sumOfWork(backends, steps int) (sum uint64) {
	for backend := range backends {
		sum += work(steps, backend)
	}
	return
}

func isEach(id, nth int) bool { return id%nth == nth-1 }

// Blocks the thread, and tells the scheduler.
func block() {
	sleep := syscall.Timespec{Nsec: 100_000}
	syscall.Nanosleep(&sleep, nil)
}

const small, large = 64, 256 << 10
const pagesOfCrawl = 1 + 8 + 64 + 512 + 4096

func shapes(name string, procs int, or func(int) int) found {
	switch name {
	case "fan_out":
		return repeated(or(5_000), fanOut)
	case "hedged":
		return repeated(or(20_000), hedged)
	case "deadline":
		return repeated(or(32_000), deadline)
	case "request_tree":
		return repeated(or(2_000), requestTree)
	case "abort":
		return repeated(or(20_000), abort)
	case "errgroup":
		return repeated(or(2_000), errGroups)
	case "spawn_chain":
		return repeated(or(100_000), spawnChain)
	case "crawl":
		return repeatedBy(or(4), or(4)*pagesOfCrawl, crawl)
	case "mixed":
		return repeated(or(40_000), mixed)
	case "actors":
		return repeated(or(400_000), func(n int) { graph(1000, 256, 200, n) })
	case "random_wakes":
		return repeated(or(300_000), func(n int) { graph(1000, 8, 8, n) })
	case "owner":
		return repeated(or(200_000), owner)
	case "pub_sub":
		return repeatedBy(or(10_000), or(10_000)*fastMembers, pubSub)
	case "pipeline":
		return repeated(or(50_000), pipeline)
	case "large_values":
		return repeated(or(200_000), largeValues)
	case "worker_pool":
		return repeated(or(200_000), workerPool)
	case "single_flight":
		return repeated(or(640_000), singleFlight)
	case "lock_short":
		return repeated(or(300_000), lockShort)
	case "lock_convoy":
		return repeated(or(100_000), lockConvoy)
	case "rw_mostly":
		return repeated(or(500_000), rwMostly)
	case "barrier":
		return repeated(or(20_000), phases)
	case "rate_limit":
		return repeatedCPU(or(20_000), rateLimit)
	case "timers_moved":
		return repeated(or(400_000), timersMoved)
	case "heartbeats":
		return repeatedCPU(or(15_000), heartbeats)
	case "bursts":
		return bursts(or(50))
	case "blocking_handlers":
		address := server(small, block)
		return repeated(or(1_600), func(n int) { closedLoop(address, 32, small, n) })
	case "large_messages":
		address := server(large, nil)
		return repeated(or(400), func(n int) { closedLoop(address, 8, large, n) })
	case "idle_bursts":
		return idleBursts(or(50))
	case "short_connections":
		return shortConnections(or(1_000))
	case "select_128":
		return repeated(or(1_000_000), select128)
	case "random_sleeps":
		return randomSleeps(or(100_000))
	case "rings":
		return measured(or(10_000), func(rounds int) float64 { return rings(procs, rounds) })
	case "thread_submit":
		return threadSubmit(or(150))
	case "spawn_wait":
		return timed(or(1_000_000), spawnJoin)
	case "parked_own":
		return parkedOwn(or(1_000_000))
	}
	return nil
}

// A goroutine that has a thread of its own, and sleeps in the kernel.
func threadSubmit(n int) found {
	took := make([]time.Duration, n)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		nap := func(ms int64) {
			sleep := syscall.Timespec{Nsec: ms * 1e6}
			syscall.Nanosleep(&sleep, nil)
		}
		for i := range n {
			nap(2)
			start := time.Now()
			go func() { took[i] = time.Since(start) }()
		}
		nap(20)
		close(done)
	}()
	<-done
	figures := make([]float64, n)
	for i, took := range took {
		check(took != 0)
		figures[i] = micros(took)
	}
	return median(figures)
}
