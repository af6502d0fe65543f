// The workloads on Go's runtime, by the standard library alone.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type found map[string]any

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	procs, n, size := 1, 0, 10
	for i := 2; i+1 < len(os.Args); i += 2 {
		value, err := strconv.Atoi(os.Args[i+1])
		if err != nil {
			usage()
		}
		switch os.Args[i] {
		case "--procs":
			procs = value
		case "--n":
			n = value
		case "--size":
			size = value
		default:
			usage()
		}
	}
	runtime.GOMAXPROCS(procs)
	or := func(standard int) int {
		if n > 0 {
			return n
		}
		return standard
	}
	var what found
	switch os.Args[1] {
	case "spawn_join":
		what = timed(or(1_000_000), spawnJoin)
	case "yield_2":
		what = timed(or(2_000_000), func(n int) { yields(2, n) })
	case "yield_1000":
		what = timed(or(2_000_000), func(n int) { yields(1000, n) })
	case "ping_pong":
		what = timed(or(1_000_000), pingPong)
	case "buffered_1x1":
		what = timed(or(8_000_000), func(n int) { buffered(1, n) })
	case "buffered_4x4":
		what = timed(or(4_000_000), func(n int) { buffered(4, n) })
	case "select":
		what = timed(or(1_000_000), selectTwo)
	case "fan_in":
		what = timed(or(1_000_000), fanIn)
	case "mutex_1":
		what = timed(or(20_000_000), func(n int) { mutex(1, n) })
	case "mutex_8":
		what = timed(or(8_000_000), func(n int) { mutex(8, n) })
	case "skynet":
		what = skynet(or(1_000_000))
	case "timer_stop":
		what = timed(or(2_000_000), timerStop)
	case "oversleep":
		what = oversleep(or(2_000))
	case "parked":
		what = parked(or(1_000_000))
	case "hog":
		what = hog(or(20), procs)
	case "cached_files":
		what = cachedFiles(or(4_000_000))
	case "blocking":
		what = blocking()
	case "storm":
		what = storm(int64(or(3000)))
	case "merge_sort":
		what = mergeSort(or(1_000_000))
	case "echo", "small_echo":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		room := 4096
		if os.Args[1] == "small_echo" {
			room = 64
		}
		echo(listener, room)
	case "unix_echo":
		listener, err := net.Listen("unix", filepath.Join(os.TempDir(), fmt.Sprintf("gmp-peer-%d", os.Getpid())))
		must(err)
		fmt.Println(listener.Addr())
		echo(listener, 4096)
	case "udp_echo":
		udpEcho()
	case "http":
		serveHTTP()
	default:
		if beside, is := strings.CutPrefix(os.Args[1], "tail_"); is {
			what = tails(beside, or)
		} else if what = curves(os.Args[1], procs, size, or); what == nil {
			what = shapes(os.Args[1], procs, or)
		}
	}
	if what == nil {
		fmt.Fprintln(os.Stderr, "no workload is called", os.Args[1])
		os.Exit(2)
	}
	text, _ := json.Marshal(what)
	fmt.Println(string(text))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: WORKLOAD --procs P [--n N] [--size S]")
	os.Exit(2)
}

func check(holds bool) {
	if !holds {
		panic("a sum is wrong")
	}
}

func perOp(took time.Duration, n int) found {
	return found{"value": float64(took.Nanoseconds()) / float64(n)}
}

func timed(n int, run func(int)) found {
	run(max(n/10, 1))
	start := time.Now()
	run(n)
	return perOp(time.Since(start), n)
}

func sumBelow(n int) int { return n * (n - 1) / 2 }

func spawnJoin(n int) {
	var group sync.WaitGroup
	var sum atomic.Int64
	for i := range n {
		group.Add(1)
		go func() {
			sum.Add(int64(i))
			group.Done()
		}()
	}
	group.Wait()
	check(int(sum.Load()) == sumBelow(n))
}

func yields(goroutines, n int) {
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range n / goroutines {
				runtime.Gosched()
			}
		})
	}
	group.Wait()
}

func pingPong(n int) {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for i := range ping {
			pong <- i + 1
		}
	}()
	for i := range n {
		ping <- i
		check(<-pong == i+1)
	}
	close(ping)
}

func buffered(each, n int) {
	channel := make(chan int, 128)
	var sending, receiving sync.WaitGroup
	var sum atomic.Int64
	for range each {
		sending.Go(func() {
			for i := range n / each {
				channel <- i
			}
		})
		receiving.Go(func() {
			mine := 0
			for i := range channel {
				mine += i
			}
			sum.Add(int64(mine))
		})
	}
	sending.Wait()
	close(channel)
	receiving.Wait()
	check(int(sum.Load()) == each*sumBelow(n/each))
}

func selectTwo(n int) {
	a, b := make(chan int), make(chan int)
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

func fanIn(n int) {
	both := make(chan int, 128)
	var arms sync.WaitGroup
	for range 2 {
		channel := make(chan int)
		go func() {
			for i := range n / 2 {
				channel <- i
			}
			close(channel)
		}()
		arms.Go(func() {
			for i := range channel {
				both <- i
			}
		})
	}
	go func() {
		arms.Wait()
		close(both)
	}()
	sum := 0
	for i := range both {
		sum += i
	}
	check(sum == 2*sumBelow(n/2))
}

// Each a goroutine. A hundred files of sixteen pages, a handle for each reader.
func cachedFiles(n int) found {
	const readers, page, pages = 1000, 4096, 16
	path := func(number int) string {
		return filepath.Join(os.TempDir(), fmt.Sprintf("gmp-peer-%d-%d", os.Getpid(), number))
	}
	bytes := make([]byte, pages*page)
	for i := range bytes {
		bytes[i] = byte(i / page)
	}
	for number := range 100 {
		must(os.WriteFile(path(number), bytes, 0o600))
	}
	files := make([]*os.File, readers)
	for reader := range files {
		file, err := os.Open(path(reader % 100))
		must(err)
		_, err = file.ReadAt(bytes, 0)
		must(err)
		files[reader] = file
	}
	for number := range 100 {
		must(os.Remove(path(number)))
	}
	cpu := func() float64 {
		var usage syscall.Rusage
		must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return float64(usage.Utime.Nano() + usage.Stime.Nano())
	}
	took := 0.0
	what := timed(n, func(n int) {
		before := cpu()
		var all sync.WaitGroup
		for _, file := range files {
			all.Add(1)
			go func() {
				defer all.Done()
				buffer := make([]byte, page)
				for i := range n / readers {
					at := i % pages
					if read, err := file.ReadAt(buffer, int64(at*page)); err != nil || read != page {
						panic(err)
					}
					if buffer[0] != byte(at) || buffer[page-1] != byte(at) {
						panic("other bytes")
					}
				}
			}()
		}
		all.Wait()
		took = (cpu() - before) / float64(n)
	})
	what["cpu"] = took
	return what
}

func mutex(goroutines, n int) {
	var lock sync.Mutex
	var group sync.WaitGroup
	count := 0
	for range goroutines {
		group.Go(func() {
			for range n / goroutines {
				lock.Lock()
				count++
				lock.Unlock()
			}
		})
	}
	group.Wait()
	check(count == n/goroutines*goroutines)
}

func node(to chan<- int, first, size int) {
	if size == 1 {
		to <- first
		return
	}
	channel, sum := make(chan int), 0
	for child := range 10 {
		go node(channel, first+child*(size/10), size/10)
	}
	for range 10 {
		sum += <-channel
	}
	to <- sum
}

func skynet(leaves int) found {
	run := func(leaves int) {
		channel := make(chan int)
		go node(channel, 0, leaves)
		check(<-channel == sumBelow(leaves))
	}
	run(leaves / 10)
	start := time.Now()
	run(leaves)
	return perOp(time.Since(start), leaves)
}

func timerStop(n int) {
	for range n {
		check(time.AfterFunc(time.Hour, func() {}).Stop())
	}
}

func oversleep(n int) found {
	took := make([]float64, n)
	for i := range took {
		start := time.Now()
		time.Sleep(time.Millisecond)
		took[i] = (float64(time.Since(start).Nanoseconds()) - 1e6) / 1e3
	}
	slices.Sort(took)
	return found{"value": took[n/2], "p99": took[n*99/100]}
}

// Resident memory and page tables, in bytes.
func resident() int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && (fields[0] == "VmRSS:" || fields[0] == "VmPTE:") {
			kb, _ := strconv.Atoi(fields[1])
			sum += kb * 1024
		}
	}
	return sum
}

func parked(n int) found {
	// A collection has no part in what is measured.
	debug.SetGCPercent(-1)
	before := resident()
	channel := make(chan struct{})
	var arrived atomic.Int64
	var group sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for range n {
		group.Add(1)
		go func() {
			arrived.Add(1)
			<-channel
			group.Done()
		}()
	}
	for int(arrived.Load()) < n {
		runtime.Gosched()
	}
	what := perOp(time.Since(start), n)
	what["cpu"] = (cpuTime() - cpu) / float64(n)
	what["bytes"] = float64(resident()-before) / float64(n)
	close(channel)
	group.Wait()
	return what
}

// The last hog that begins starts one more goroutine, and spins too.
func hog(rounds, procs int) found {
	waits := make([]float64, rounds)
	for i := range waits {
		var spinning atomic.Int64
		var over atomic.Bool
		var group sync.WaitGroup
		began := make(chan time.Duration, 1)
		for range procs {
			group.Go(func() {
				if int(spinning.Add(1)) == procs {
					start := time.Now()
					go func() { began <- time.Since(start) }()
				}
				for !over.Load() {
				}
			})
		}
		waits[i] = (<-began).Seconds() * 1e3
		over.Store(true)
		group.Wait()
	}
	slices.Sort(waits)
	return found{"value": waits[rounds/2], "max": waits[rounds-1]}
}

func blocking() found {
	run := func(times int) {
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				for range times {
					sleep := syscall.Timespec{Nsec: 1e6}
					syscall.Nanosleep(&sleep, nil)
				}
			})
		}
		group.Wait()
	}
	run(2)
	start := time.Now()
	run(20)
	return found{"value": time.Since(start).Seconds() * 1e3}
}

const cutoff = 1024

func sort(numbers, space []uint64) {
	if len(numbers) <= cutoff {
		slices.Sort(numbers)
		return
	}
	middle := len(numbers) / 2
	var group sync.WaitGroup
	group.Go(func() { sort(numbers[:middle], space[:middle]) })
	sort(numbers[middle:], space[middle:])
	group.Wait()
	copy(space, numbers)
	left, right := 0, middle
	for i := range numbers {
		if right == len(space) || (left < middle && space[left] <= space[right]) {
			numbers[i] = space[left]
			left++
		} else {
			numbers[i] = space[right]
			right++
		}
	}
}

func mergeSort(n int) found {
	input := make([]uint64, n)
	x := uint64(0x2545F4914F6CDD1D)
	for i := range input {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		input[i] = x
	}
	space := make([]uint64, n)
	run := func() time.Duration {
		numbers := slices.Clone(input)
		start := time.Now()
		sort(numbers, space)
		took := time.Since(start)
		check(slices.IsSorted(numbers))
		return took
	}
	run()
	return found{"value": run().Seconds() * 1e3}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// With so many bytes for what is read.
func echo(listener net.Listener, room int) {
	for {
		conn, err := listener.Accept()
		must(err)
		go serve(conn, room)
	}
}

func udpEcho() {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(err)
	fmt.Println(conn.LocalAddr().(*net.UDPAddr).Port)
	buffer := make([]byte, 4096)
	for {
		// The pair of calls that allocates nothing.
		got, from, err := conn.ReadFromUDPAddrPort(buffer)
		must(err)
		_, err = conn.WriteToUDPAddrPort(buffer[:got], from)
		must(err)
	}
}

func serve(conn net.Conn, room int) {
	defer conn.Close()
	buffer := make([]byte, room)
	for {
		got, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:got]); err != nil {
			return
		}
	}
}
