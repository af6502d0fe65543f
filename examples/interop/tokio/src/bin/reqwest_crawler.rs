//! Follows the links of a site, with a goroutine for each page and a limit for the requests at once. The goroutines call
//! `reqwest` like a function. It runs as a task of the reactor beside the runtime.

use gmp::sync::{Mutex, Semaphore, WaitGroup};
use gmp_interop::Args;
use reqwest::{Client, Url};
use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const HELP: &str = "\
reqwest_crawler [--at-once COUNT] [--patience MS] URL
  Fetches URL and all pages of its host to which links lead, each once, and tells which links are broken.
  --at-once   how many requests there are at most (16)
  --patience  how long a page may take, its body included (10,000)
";

struct Crawl {
    client: Client,
    /// The page where the crawl began.
    start: Url,
    at_once: Semaphore,
    pages: WaitGroup,
    seen: Mutex<BTreeSet<Url>>,
    broken: Mutex<Vec<String>>,
    fetched: AtomicU64,
    bytes: AtomicU64,
}

impl Crawl {
    /// Starts a goroutine for a page that the crawl has not seen yet.
    fn visit(self: &Arc<Self>, page: Url) {
        if self.seen.lock().insert(page.clone()) {
            let crawl = Arc::clone(self);
            self.pages.go(move || {
                match crawl.fetch(&page) {
                    Ok((place, text)) => {
                        crawl.links(&place, &text).into_iter().for_each(|link| crawl.visit(link));
                    }
                    Err(refused) => crawl.broken.lock().push(format!("{page}: {refused}")),
                };
            });
        }
    }

    /// Waits for its turn and for the page. The permit goes back however the wait ends. Returns the text, and the address where
    /// it was found, because the page can have moved.
    fn fetch(&self, page: &Url) -> reqwest::Result<(Url, String)> {
        let _turn = self.at_once.acquire_guard(1);
        let (client, page) = (self.client.clone(), page.clone());
        let (place, text) = gmp_tokio::run(async move {
            let response = client.get(page).send().await?.error_for_status()?;
            let place = response.url().clone();
            Ok::<_, reqwest::Error>((place, response.text().await?))
        })?;
        self.seen.lock().insert(place.clone());
        // Relaxed: the numbers are read when all pages have ended.
        self.fetched.fetch_add(1, Relaxed);
        self.bytes.fetch_add(text.len() as u64, Relaxed);
        Ok((place, text))
    }

    /// Returns `true` if the page is on the host where the crawl began.
    fn is_own(&self, page: &Url) -> bool {
        page.host_str() == self.start.host_str() && page.port() == self.start.port()
    }

    /// Returns the links to the same host in `text`, which was found at `page`.
    fn links(&self, page: &Url, text: &str) -> Vec<Url> {
        if !self.is_own(page) {
            return Vec::new();
        }
        let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
        let links = links.filter_map(|(link, _)| page.join(link).ok()).map(|mut link| {
            link.set_fragment(None);
            link
        });
        links.filter(|link| self.is_own(link)).collect()
    }
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let at_once = args.value("--at-once").unwrap_or(16).max(1);
    let patience = Duration::from_millis(args.value("--patience").unwrap_or(10_000));
    let urls = args.rest();
    args.finish();
    let [url] = &urls[..] else {
        return Err(io::Error::other("one URL is to be told; --help tells more"));
    };
    let url = Url::parse(url).map_err(|wrong| io::Error::other(format!("{url}: {wrong}")))?;

    // SAFETY: these goroutines keep nothing of a thread across a call that parks; reqwest runs on the reactor's threads.
    let runtime = unsafe { gmp_tokio::install(gmp::Runtime::builder())?.build()? };
    let crawl = runtime.run(move || -> io::Result<_> {
        let client = Client::builder().no_proxy().timeout(patience).build().map_err(io::Error::other)?;
        let crawl = Arc::new(Crawl {
            client,
            start: url.clone(),
            at_once: Semaphore::new(at_once),
            pages: WaitGroup::new(),
            seen: Mutex::default(),
            broken: Mutex::default(),
            fetched: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        crawl.visit(url);
        crawl.pages.wait();
        Ok(crawl)
    })?;
    let mut broken = std::mem::take(&mut *crawl.broken.lock());
    broken.sort_unstable();
    broken.iter().for_each(|link| println!("broken: {link}"));
    let (fetched, bytes) = (crawl.fetched.load(Relaxed), crawl.bytes.load(Relaxed));
    println!("{fetched} pages, {bytes} bytes, {} broken links", broken.len());
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("reqwest_crawler", run)
}
