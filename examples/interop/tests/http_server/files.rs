//! Conditions and ranges of a client other than curl.

use crate::Site;
use crate::client::{Client, get, with};
use harness::everywhere;
use std::fs;

/// Fails if an answer depends on a weaker condition than the strongest of the request, or has another length.
#[test]
fn conditions_and_ranges_are_weighed() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut client = Client::new(&site);
        let whole = client.ask(get("/hello.txt"));
        let (tag, date) =
            (whole.header("etag").unwrap().to_owned(), whole.header("last-modified").unwrap().to_owned());
        let mut status = |headers: &[&str]| {
            let answer = client.ask(with("GET", "/hello.txt", headers));
            (answer.status, String::from_utf8(answer.body).expect("text"))
        };
        let whole = (200, "hello, world\n".to_owned());
        let unchanged = (304, String::new());
        let hell = (206, "hell".to_owned());
        let (same, weak, other) = (
            &*format!("If-None-Match: {tag}"),
            &*format!("If-None-Match: \"x\", W/{tag}"),
            "If-None-Match: \"x\"",
        );
        let (since, long_ago) =
            (&*format!("If-Modified-Since: {date}"), "If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT");
        assert_eq!(status(&[same]), unchanged);
        assert_eq!(status(&[weak]), unchanged);
        assert_eq!(status(&["If-None-Match: *"]), unchanged);
        assert_eq!(status(&[since]), unchanged);
        assert_eq!(status(&[long_ago]), whole);
        assert_eq!(status(&["If-Modified-Since: yesterday"]), whole);
        // The tag decides.
        assert_eq!(status(&[other, since]), whole);
        assert_eq!(status(&[same, long_ago]), unchanged);
        let range = "Range: bytes=0-3";
        assert_eq!(status(&[range]), hell);
        assert_eq!(status(&[range, same]), unchanged);
        assert_eq!(status(&[range, &format!("If-Range: {tag}")]), hell);
        assert_eq!(status(&[range, &format!("If-Range: {date}")]), hell);
        assert_eq!(status(&[range, "If-Range: \"x\""]), whole);
        // None of these is a single range of bytes.
        for ignored in
            ["bytes=0-1,3-4", "bytes=3-0", "lines=0-1", "bytes=a-b", "bytes=-", "bytes=+1-2", "bytes"]
        {
            assert_eq!(status(&[&format!("Range: {ignored}")]), whole, "{ignored}");
        }
        for empty in ["bytes=13-", "bytes=-0", "bytes=99999999999999999999-", "bytes=13-99999999999999999999"]
        {
            assert_eq!(status(&[&format!("Range: {empty}")]).0, 416, "{empty}");
        }
        for (more, text) in [("bytes=7-99999999999999999999", "world\n"), ("bytes=-99", "hello, world\n")] {
            assert_eq!(status(&[&format!("Range: {more}")]), (206, text.to_owned()), "{more}");
        }

        client.send(with("HEAD", "/hello.txt", &[range]));
        let head = client.answer_to("HEAD");
        assert_eq!((head.status, head.header("content-length")), (200, Some("13")));
        let part = client.ask(with("GET", "/hello.txt", &["Range: bytes=-3"]));
        assert_eq!(part.header("content-range"), Some("bytes 10-12/13"));
        for method in ["POST", "DELETE", "OPTIONS", "PUT"] {
            let answer = client.ask(with(method, "/hello.txt", &[]));
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
        }
        assert_eq!(client.ask(with("BREW", "/hello.txt", &[])).status, 501);
        client.expect_alive();
        drop(client);
        assert_eq!(site.stop().0, 1);
    });
}

/// Fails when an answer leads to another host, as `//folder/` does, lacks the query, or leads to itself.
#[test]
fn a_folder_is_found_behind_a_slash() {
    everywhere(|procs| {
        let site = Site::start(procs);
        site.scratch.file("www/sub/index.html/not an index", "");
        let mut client = Client::new(&site);
        for (asked, leads_to) in [
            ("/sub", "/sub/"),
            ("/sub?a=b", "/sub/?a=b"),
            ("//sub", "/sub/"),
            ("///sub?a=//b", "/sub/?a=//b"),
            ("/a%20folder", "/a%20folder/"),
            ("http://proxied/sub?a", "/sub/?a"),
        ] {
            let answer = client.ask(get(asked));
            assert_eq!((answer.status, answer.header("location")), (301, Some(leads_to)), "{asked}");
        }
        assert_eq!(client.ask(get("/sub/")).status, 404);
        drop(client);
        site.stop();
    });
}

/// Returns the names of the files that hold uploads under way, or that were left behind.
fn parts(site: &Site) -> Vec<String> {
    let names = fs::read_dir(site.scratch.join("www")).expect("it is there");
    let names = names.map(|entry| entry.expect("it is there").file_name().into_string().expect("ASCII"));
    let mut parts: Vec<_> = names.filter(|name| name.ends_with(".part")).collect();
    parts.sort();
    parts
}

/// Fails if an upload writes to, renames or removes a file that another process has made in the same folder.
#[test]
fn an_upload_has_a_file_of_its_own() {
    everywhere(|procs| {
        let site = Site::with(procs, &["--writable"]);
        let pid = site.server.pid();
        // These are names that other processes use, and those of this process' first two uploads.
        let mut others = ["0".to_owned(), "1-0".to_owned(), format!("{pid}-0"), format!("{pid}-1")]
            .map(|name| format!(".{name}.part"));
        others.sort();
        others.iter().for_each(|name| drop(site.scratch.file(&format!("www/{name}"), "another's")));
        let mut client = Client::new(&site);
        let mut put = |path: &str| {
            let request = with("PUT", path, &["Content-Length: 4"]) + "mine";
            client.ask(request).status
        };
        assert_eq!((put("/new"), put("/new")), (201, 204));
        assert_eq!(put("/a%20folder"), 409);
        // This target is not a folder, but a name that the kernel refuses.
        assert_eq!(put(&format!("/{}", "x".repeat(300))), 500);
        assert_eq!(fs::read(site.scratch.join("www/new")).expect("it is there"), b"mine");
        for name in &others {
            assert_eq!(
                fs::read(site.scratch.join("www").join(name)).expect("it stays"),
                b"another's",
                "{name}"
            );
        }
        assert_eq!(parts(&site), others);
        client.expect_alive();
        drop(client);
        site.stop();
    });
}
