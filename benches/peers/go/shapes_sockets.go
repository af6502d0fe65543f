package main

import (
	"io"
	"net"
	"time"
)

// A server with a goroutine for each connection, each with a buffer for a message; gives its address.
func server(size int, beforeAnswer func()) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		for {
			conn, err := listener.Accept()
			must(err)
			go func() {
				defer conn.Close()
				buffer := make([]byte, size)
				for {
					if _, err := io.ReadFull(conn, buffer); err != nil {
						return
					}
					if beforeAnswer != nil {
						beforeAnswer()
					}
					if _, err := conn.Write(buffer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(address string) net.Conn {
	conn, err := net.Dial("tcp", address)
	must(err)
	return conn
}

func ask(conn net.Conn, buffer []byte, i int) {
	last := len(buffer) - 1
	buffer[0], buffer[last] = byte(i), ^byte(i)
	_, err := conn.Write(buffer)
	must(err)
	buffer[0] = 0
	_, err = io.ReadFull(conn, buffer)
	must(err)
	check(buffer[0] == byte(i) && buffer[last] == ^byte(i))
}

func closedLoop(address string, connections, size, n int) {
	inEach(connections, func(int) {
		conn := dial(address)
		defer conn.Close()
		buffer := make([]byte, size)
		for i := range n / connections {
			ask(conn, buffer, i)
		}
	})
}

func idleBursts(n int) found {
	address := server(small, nil)
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = dial(address)
	}
	buffer := make([]byte, small)
	var took []float64
	for round := range n + n/10 {
		time.Sleep(2 * time.Millisecond)
		of := func(i int) net.Conn { return conns[(round*7+i*10)%1000] }
		start := time.Now()
		for i := range 100 {
			buffer[0] = byte(i)
			_, err := of(i).Write(buffer)
			must(err)
		}
		for i := range 100 {
			_, err := io.ReadFull(of(i), buffer)
			must(err)
			check(buffer[0] == byte(i))
		}
		if round >= n/10 {
			took = append(took, micros(time.Since(start)))
		}
	}
	return median(took)
}

func shortConnections(n int) found {
	address := server(small, nil)
	return repeated(n, func(n int) {
		inEach(16, func(int) {
			buffer := make([]byte, small)
			for i := range n / 16 {
				conn := dial(address)
				ask(conn, buffer, i)
				conn.Close()
			}
		})
	})
}
