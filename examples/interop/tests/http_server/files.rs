//! Conditions and ranges, as a client gives them that is not curl.

use crate::Site;
use crate::client::{Client, get, with};
use harness::everywhere;

/// Fails when an answer depends on a weaker condition than the strongest that is given, or has another length.
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
        // No single range of bytes.
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
