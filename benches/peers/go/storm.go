package main

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	stormSpawners = 2
	stormWork     = 2 * time.Microsecond
	stormEach     = time.Second
)

func stormSpawner(most int64, live *atomic.Int64, over *atomic.Bool) {
	for !over.Load() {
		if live.Load() >= most {
			runtime.Gosched()
			continue
		}
		live.Add(1)
		go func() {
			for begun := time.Now(); time.Since(begun) < stormWork; {
			}
			live.Add(-1)
		}()
	}
}

// Does it again and again, and says how long it took each time.
func again(it func()) (took []time.Duration) {
	for begun := time.Now(); time.Since(begun) < stormEach; {
		start := time.Now()
		it()
		took = append(took, time.Since(start))
	}
	return took
}

func stormConnection() net.Conn {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err == nil)
	near, err := net.Dial("tcp", listener.Addr().String())
	check(err == nil)
	far, err := listener.Accept()
	check(err == nil)
	go func() {
		for b := make([]byte, 1); ; {
			if n, err := far.Read(b); n != 1 || err != nil {
				return
			}
			far.Write(b)
		}
	}()
	return near
}

// Go has no plain threads: a locked goroutine has a thread of its own, which sleeps outside of the scheduler.
func fromAThread() (took []time.Duration) {
	times := make(chan time.Time)
	go func() {
		runtime.LockOSThread()
		for begun := time.Now(); time.Since(begun) < stormEach; {
			time.Sleep(2 * time.Millisecond)
			times <- time.Now()
		}
		close(times)
	}()
	for sent := range times {
		took = append(took, time.Since(sent))
	}
	return took
}

// How long others wait beside goroutines that spawn and yield, with more of them alive than a run queue holds.
func storm(most int64) found {
	var live atomic.Int64
	var over atomic.Bool
	near := stormConnection()
	var spawners sync.WaitGroup
	for range stormSpawners {
		spawners.Go(func() { stormSpawner(most, &live, &over) })
	}
	b := make([]byte, 1)
	of := map[string][]time.Duration{}
	of["yield"] = again(runtime.Gosched)
	of["sleep"] = again(func() { time.Sleep(time.Millisecond) })
	of["join"] = again(func() {
		ended := make(chan struct{})
		go func() { close(ended) }()
		<-ended
	})
	of["echo"] = again(func() {
		near.Write(b)
		n, err := near.Read(b)
		check(n == 1 && err == nil)
	})
	of["thread"] = fromAThread()
	over.Store(true)
	spawners.Wait()
	near.Close()
	what, longest := found{}, time.Duration(0)
	for name, took := range of {
		slices.Sort(took)
		at := func(share float64) float64 { return took[int(float64(len(took))*share)].Seconds() * 1e3 }
		what[name+"_p50"], what[name+"_p999"] = at(0.5), at(0.999)
		longest = max(longest, took[len(took)-1])
	}
	what["value"] = longest.Seconds() * 1e3
	return what
}
