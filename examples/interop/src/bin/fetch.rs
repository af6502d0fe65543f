//! Fetches documents with ureq, in a goroutine for each, over our sockets or, with `--std`, over ureq's own.
//!
//! cargo run --release --bin fetch -- http://127.0.0.1/a http://127.0.0.1/b
//!
//! 200 612 bytes, sum 3a8f9c2b11d07e45 http://127.0.0.1/a
//! error: timeout: global http://127.0.0.1/b
//! fetched 1, 1 failed

use gmp::Runtime;
use gmp_interop::{Args, transport};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::process::ExitCode;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const HELP: &str = "\
fetch [--std] [--timeout MS] [--root FILE] [--rounds COUNT] URL ..
  Fetches all of them at once, a goroutine for each, and tells status, length and a checksum of each.
  --std      by ureq's own sockets: a thread for each
  --timeout  how long each may take (10,000)
  --root     whom to trust for https, as PEM
  --rounds   how often each goroutine fetches its document (1)
";

fn fetch(agent: &Agent, url: &str) -> Result<String, ureq::Error> {
    let mut response = agent.get(url).call()?;
    let (mut sum, mut length, mut chunk) = (DefaultHasher::new(), 0, [0; 8 << 10]);
    let mut body = response.body_mut().as_reader();
    loop {
        match body.read(&mut chunk).map_err(ureq::Error::from)? {
            0 => break,
            got => (sum.write(&chunk[..got]), length += got).1,
        }
    }
    Ok(format!("{} {length} bytes, sum {:016x}", response.status().as_u16(), sum.finish()))
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let std = args.flag("--std");
    let timeout = Duration::from_millis(args.value("--timeout").unwrap_or(10_000));
    let rounds = args.value("--rounds").unwrap_or(1);
    let root: Option<String> = args.value("--root");
    let urls = args.rest();
    args.finish();
    let mut config =
        Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false).proxy(None);
    if let Some(file) = root {
        let root = Certificate::from_pem(&std::fs::read(file)?).map_err(io::Error::other)?;
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root])).build();
        config = config.tls_config(tls);
    }
    let agent = if std { config.build().new_agent() } else { transport::agent(config.build()) };
    // SAFETY: ureq, and rustls under it, keep nothing of a thread across a call that parks. docs/crates.md says how that was
    // checked.
    let runtime = unsafe { Runtime::builder().build()? };
    let fetching: Vec<_> = urls
        .into_iter()
        .map(|url| {
            let agent = agent.clone();
            runtime.go(move || {
                let mut last = Ok(String::new());
                for _ in 0..rounds {
                    last = fetch(&agent, &url);
                    if last.is_err() {
                        break;
                    }
                }
                (url, last)
            })
        })
        .collect();
    let (mut fetched, mut failed) = (0, 0);
    for one in fetching {
        match one.join().map_err(io::Error::other)? {
            (url, Ok(told)) => (println!("{told} {url}"), fetched += 1).1,
            (url, Err(why)) => (println!("error: {why} {url}"), failed += 1).1,
        }
    }
    println!("fetched {fetched}, {failed} failed");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("fetch", run)
}
