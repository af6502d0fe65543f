package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Runs it in so many goroutines, and waits for them.
func inEach(goroutines int, run func(number int)) {
	var all sync.WaitGroup
	for number := range goroutines {
		all.Go(func() { run(number) })
	}
	all.Wait()
}

func singleFlight(n int) {
	type cell struct {
		once  sync.Once
		value int
	}
	var lock sync.Mutex
	var loads atomic.Int64
	cache := make(map[int]*cell)
	inEach(64, func(caller int) {
		pick := pickOf(caller)
		for range n / 64 {
			key := pick.below(1000)
			lock.Lock()
			found := cache[key]
			if found == nil {
				found = new(cell)
				cache[key] = found
			}
			lock.Unlock()
			found.once.Do(func() {
				loads.Add(1)
				time.Sleep(time.Millisecond)
				found.value = key + 7
			})
			check(found.value == key+7)
		}
	})
	check(int(loads.Load()) == len(cache))
}

func lockShort(n int) {
	var lock sync.Mutex
	count := 0
	inEach(64, func(int) {
		for i := range n / 64 {
			lock.Lock()
			work(50, i)
			count++
			lock.Unlock()
			work(200, i)
		}
	})
	check(count == n/64*64)
}

func lockConvoy(n int) {
	var lock sync.Mutex
	count := 0
	inEach(64, func(int) {
		for range n / 64 {
			lock.Lock()
			before := count
			runtime.Gosched()
			count = before + 1
			lock.Unlock()
		}
	})
	check(count == n/64*64)
}

func rwMostly(n int) {
	var lock sync.RWMutex
	count := 0
	inEach(32, func(int) {
		for i := range n / 32 {
			if i%100 == 99 {
				lock.Lock()
				count++
				lock.Unlock()
			} else {
				lock.RLock()
				work(30, count)
				lock.RUnlock()
			}
		}
	})
	check(count == n/32/100*32)
}

type phaser struct {
	lock    sync.Mutex
	all     sync.Cond
	waiting int
	phase   int
}

func (p *phaser) wait(members int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.waiting++
	if p.waiting == members {
		p.waiting = 0
		p.phase++
		p.all.Broadcast()
		return
	}
	for phase := p.phase; phase == p.phase; {
		p.all.Wait()
	}
}

func phases(n int) {
	var barrier phaser
	barrier.all.L = &barrier.lock
	var count atomic.Int64
	inEach(8, func(int) {
		for phase := range n {
			work(500, phase)
			count.Add(1)
			barrier.wait(8)
			check(int(count.Load()) >= 8*(phase+1))
		}
	})
}

func rateLimit(n int) {
	const room = 400
	bucket := make(chan struct{}, room)
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			for i := range n / 100 {
				<-bucket
				work(50, i)
			}
		})
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for left := n / 100 * 100; left > 0; {
		<-ticker.C
		for range min(left, 200, room-len(bucket)) {
			bucket <- struct{}{}
			left--
		}
	}
	callers.Wait()
	check(len(bucket) == 0)
}

func timersMoved(n int) {
	const limit = 30 * time.Second
	var fired atomic.Int64
	inEach(4, func(int) {
		timers := make([]*time.Timer, 2500)
		for i := range timers {
			timers[i] = time.AfterFunc(limit, func() { fired.Add(1) })
		}
		for i := range n / 4 {
			check(timers[i%len(timers)].Reset(limit + time.Duration(i%100)*time.Millisecond))
		}
		for _, timer := range timers {
			check(timer.Stop())
		}
	})
	check(fired.Load() == 0)
}

func heartbeats(n int) {
	var count atomic.Int64
	inEach(1000, func(int) {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for range n / 1000 {
			<-ticker.C
			count.Add(1)
		}
	})
	check(int(count.Load()) == n/1000*1000)
}

func bursts(n int) found {
	var took []float64
	for round := range n + n/10 {
		time.Sleep(2 * time.Millisecond)
		var sum atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for i := range 500 {
			all.Go(func() {
				work(1000, i)
				sum.Add(int64(i))
			})
		}
		all.Wait()
		check(int(sum.Load()) == sumBelow(500))
		if round >= n/10 {
			took = append(took, micros(time.Since(start)))
		}
	}
	return median(took)
}

func randomSleeps(n int) found {
	run := func(n int) time.Duration {
		start := time.Now()
		inEach(n, func(number int) {
			pick := pickOf(number)
			for range 10 {
				time.Sleep(time.Duration(1000+pick.below(9001)) * time.Microsecond)
			}
		})
		return time.Since(start)
	}
	run(n / 10)
	return found{"value": run(n).Seconds() * 1e3}
}
