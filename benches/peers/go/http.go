package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

// The HTTP server of the page `http`: it prints its port, and serves /api/time. Its limits are those of the example.
func serveHTTP() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/time", answerTime)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	must(server.Serve(listener))
}

func answerTime(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	text, err := json.Marshal(struct {
		UnixMs int64  `json:"unix_ms"`
		HTTP   string `json:"http"`
	}{now.UnixMilli(), now.UTC().Format(http.TimeFormat)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text)
}
