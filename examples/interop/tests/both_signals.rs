//! Every server here ends within a second of SIGINT and of SIGTERM, while a client stays and says nothing.

use harness::{Example, Scratch, certificate, everywhere, example, peer};
use std::process::Command;

#[track_caller]
fn stops(command: impl Fn() -> Command) {
    everywhere(|procs| {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let mut command = command();
            let server = Example::start(command.args(["--listen", "127.0.0.1:0"]), procs);
            let _client = server.connect();
            let at = server.signal_by(signal);
            let said = server.stopped(at);
            assert!(said.starts_with("served "), "{signal}: {said}");
        }
    });
}

#[test]
fn the_chat_stops() {
    stops(|| example!("ws_chat"));
}

#[test]
fn the_proxy_stops() {
    stops(|| example!("redis_proxy"));
}

#[test]
fn the_counter_stops() {
    stops(|| example!("redis_count"));
}

#[test]
fn the_echo_stops() {
    let openssl = peer!("openssl");
    let scratch = Scratch::new();
    let (cert, key) = certificate(&openssl, &scratch);
    stops(|| {
        let mut command = example!("tls_echo");
        command.arg("--cert").arg(&cert).arg("--key").arg(&key);
        command
    });
}

#[test]
fn the_file_server_stops() {
    stops(|| example!("http_server"));
}
