//! The harness itself, with peers and with a shell in place of an example.

use harness::{Example, Peer, eventually, everywhere, peer, run};
use std::path::Path;
use std::process::Command;

/// Makes a shell that says that it listens, and that ends by SIGTERM as `trap` says.
fn shell(trap: &str) -> Command {
    let mut command = Command::new("sh");
    let script = "trap \"$1\" TERM; echo 'listening on 127.0.0.1:4711, really'; while :; do sleep 0.01; done";
    command.args(["-c", script, "sh", trap]);
    command
}

#[test]
fn an_example_that_stops_has_said_all() {
    everywhere(|procs| {
        let example = Example::start(&mut shell("echo procs $GMPMAXPROCS; exit 0"), procs);
        assert_eq!(example.addr().port(), 4711);
        assert!(example.threads() >= 1);
        assert_eq!(example.terminate(), format!("procs {procs}\n"));
    });
}

#[test]
#[should_panic(expected = "it ended with exit status: 3")]
fn a_bad_status_is_seen() {
    Example::start(&mut shell("exit 3"), 1).terminate();
}

#[test]
#[should_panic(expected = "the stop took")]
fn a_late_end_is_seen() {
    Example::start(&mut shell("sleep 1.1; exit 0"), 1).terminate();
}

#[test]
#[should_panic(expected = "the peer ended: exit status: 7: no place")]
fn a_peer_that_ends_at_once_is_told() {
    Peer::start(|_, _| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no place; exit 7"]);
        command
    });
}

/// Fails if one of the processes of nginx, or its folder, outlives the peer.
#[test]
fn a_peer_is_there_for_its_test_and_leaves_nothing() {
    let (nginx, curl) = (peer!("nginx"), peer!("curl"));
    let peer = Peer::start(|scratch, addr| {
        scratch.file("www/hello.txt", "hello");
        let config = scratch.file("nginx.conf", nginx_config(scratch.path(), &addr.to_string()));
        let mut command = nginx.command();
        command.arg("-e").arg(scratch.join("error.log")).arg("-c").arg(config);
        command
    });
    let url = format!("http://{}/hello.txt", peer.addr());
    assert_eq!(run(curl.command().args(["-sSf", &url])).good(), "hello");
    let (addr, folder, group) = (peer.addr(), peer.scratch().path().to_owned(), peer.pid());
    drop(peer);
    assert!(!folder.exists(), "{folder:?}");
    // The workers have another parent now, which reaps them. SAFETY: signal 0 only checks that the group exists.
    eventually("no process of the group", || unsafe { libc::kill(-(group as libc::pid_t), 0) } != 0);
    assert!(std::net::TcpStream::connect(addr).is_err(), "somebody listens on {addr}");
}

fn nginx_config(folder: &Path, addr: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 1; pid {folder}/pid; events {{}}
         http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                server {{ listen {addr}; root {folder}/www; }} }}"
    )
}
