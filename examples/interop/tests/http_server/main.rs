//! The HTTP server, driven by programs of others and by bytes that no good client sends.

mod client;
mod curl;
mod files;
mod framing;
mod load;
mod slow;

use harness::{Example, Scratch, example};

/// Returns bytes whose values follow from their places.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// A folder with a few files, and its server. Beside the folder lie files that must not be served.
struct Site {
    scratch: Scratch,
    server: Example,
}

impl Site {
    fn start(procs: usize) -> Self {
        Site::with(procs, &[])
    }

    /// Starts the server with more arguments.
    fn with(procs: usize, args: &[&str]) -> Self {
        let scratch = Scratch::new();
        scratch.file("secret.txt", "secret");
        scratch.file("www/hello.txt", "hello, world\n");
        scratch.file("www/empty.txt", "");
        scratch.file("www/a folder/index.html", "<p>index</p>");
        scratch.file("www/numbers", content(300_000));
        let mut command = example!("http_server");
        command.args(["--listen", "127.0.0.1:0", "--root"]).arg(scratch.join("www")).args(args);
        Site { server: Example::start(&mut command, procs), scratch }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.addr())
    }

    /// Ends the server, and checks that it has cut off no connection. Returns the numbers of connections and of requests.
    #[track_caller]
    fn stop(self) -> (u64, u64) {
        totals(&self.server.terminate(), 0)
    }
}

/// Returns the numbers of the server's last line.
#[track_caller]
fn totals(said: &str, cut: u64) -> (u64, u64) {
    let numbers: Vec<u64> = said.split([' ', ',', ';']).filter_map(|word| word.parse().ok()).collect();
    let [connections, requests, was_cut] = numbers[..] else { panic!("three numbers in {said:?}") };
    assert_eq!(was_cut, cut, "{said}");
    (connections, requests)
}
