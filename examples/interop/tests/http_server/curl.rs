//! The server's answers to `curl`.

use crate::{Site, content};
use harness::{Program, everywhere, peer, run, run_with_input};
use std::fs;

/// Runs curl, and returns the last status and the output.
#[track_caller]
fn curl(curl: &Program, args: &[&str], input: &[u8]) -> (u16, Vec<u8>) {
    let mut command = curl.command();
    command.args(["-sS", "-m", "20", "-w", "%{stderr}%{http_code}\n"]).args(args);
    let done = run_with_input(&mut command, input);
    assert_eq!(done.status, Some(0), "{args:?}: {}", done.stderr);
    let last = done.stderr.lines().last().expect("a line for each answer");
    (last.parse().expect("a status"), done.stdout)
}

#[test]
fn files_arrive_whole_and_in_parts() {
    let program = peer!("curl");
    everywhere(|procs| {
        let site = Site::start(procs);
        let numbers = content(300_000);
        let got = |args: &[&str], path: &str| curl(&program, &[args, &[&site.url(path)]].concat(), b"");
        assert_eq!(got(&[], "/hello.txt"), (200, b"hello, world\n".to_vec()));
        assert_eq!(got(&[], "/empty.txt"), (200, vec![]));
        assert_eq!(got(&[], "/a%20folder/"), (200, b"<p>index</p>".to_vec()));
        assert_eq!(got(&["-L"], "/a%20folder"), (200, b"<p>index</p>".to_vec()));
        assert!(got(&[], "/numbers") == (200, numbers.clone()));
        for (range, part) in [
            ("0-0", 0..1),
            ("100000-199999", 100_000..200_000),
            ("299990-", 299_990..300_000),
            ("-5", 299_995..300_000),
        ] {
            assert!(got(&["-r", range], "/numbers") == (206, numbers[part].to_vec()), "{range}");
        }
        assert_eq!(got(&["-r", "300000-"], "/numbers").0, 416);
        let (status, head) = got(&["-I"], "/numbers");
        let head = String::from_utf8(head).expect("text");
        assert!(status == 200 && head.contains("Content-Length: 300000\r\n"), "{head}");
        assert_eq!(got(&[], "/nothing").0, 404);
        // One call of curl uses one connection for all its requests.
        let (hello, folder) = (site.url("/hello.txt"), site.url("/a%20folder/"));
        let three = curl(&program, &[&hello, &folder, &hello], b"").1;
        assert_eq!(three, b"hello, world\n<p>index</p>hello, world\n");
        site.stop();
    });
}

/// Fails if the second request transfers the file again.
#[test]
fn what_curl_has_is_not_sent_again() {
    let program = peer!("curl");
    everywhere(|procs| {
        let site = Site::start(procs);
        let (tags, target) = (site.scratch.join("tags"), site.scratch.join("got"));
        let (url, tags, target) = (site.url("/hello.txt"), tags.to_str().unwrap(), target.to_str().unwrap());
        let args = ["--etag-save", tags, "--etag-compare", tags, "-o", target, &url];
        assert_eq!(curl(&program, &args, b"").0, 200);
        assert_eq!(fs::read(target).expect("it was written"), b"hello, world\n");
        assert_eq!(curl(&program, &args, b"").0, 304);
        // The condition is the time of the file that curl has.
        assert_eq!(curl(&program, &["-R", "-o", target, &url], b"").0, 200);
        assert_eq!(curl(&program, &["-z", target, "-o", target, &url], b"").0, 304);
        assert_eq!(fs::read(target).expect("it is still there"), b"hello, world\n");
        site.stop();
    });
}

/// Fails by a wrong byte, when a body that is too long is accepted, or when an unfinished file stays.
#[test]
fn uploads_up_to_the_limit_arrive() {
    let program = peer!("curl");
    everywhere(|procs| {
        let site = Site::with(procs, &["--writable"]);
        let most = content(10 << 20);
        let put = |name: &str, args: &[&str], bytes: &[u8]| {
            curl(&program, &[args, &["-T", "-", &site.url(name)]].concat(), bytes).0
        };
        let on_disk = |name: &str| fs::read(site.scratch.join("www").join(name)).expect("it was written");
        // curl sends what it reads from a pipe in chunks.
        assert_eq!(put("/chunked", &[], &most), 201);
        assert!(on_disk("chunked") == most);
        assert_eq!(put("/chunked", &[], b"less"), 204);
        assert_eq!(on_disk("chunked"), b"less");
        let file = site.scratch.file("upload", &most);
        let file = file.to_str().expect("ASCII");
        // These bodies have a known length. curl sends the first with `Expect: 100-continue`, because it is long, and the
        // second without.
        assert_eq!(curl(&program, &["-T", file, &site.url("/sized")], b"").0, 201);
        assert!(on_disk("sized") == most);
        assert_eq!(curl(&program, &["-H", "Expect:", "-T", file, &site.url("/eager")], b"").0, 201);
        assert!(on_disk("eager") == most);
        assert_eq!(curl(&program, &[&site.url("/sized")], b"").1.len(), 10 << 20);

        let longer = content((10 << 20) + 1);
        let file = site.scratch.file("upload", &longer);
        let file = file.to_str().expect("ASCII");
        assert_eq!(put("/refused", &[], &longer), 413);
        assert_eq!(curl(&program, &["-T", file, &site.url("/refused")], b"").0, 413);
        assert_eq!(curl(&program, &["-H", "Expect:", "-T", file, &site.url("/refused")], b"").0, 413);
        let names = fs::read_dir(site.scratch.join("www")).expect("it is there");
        let mut names: Vec<_> = names.map(|entry| entry.expect("it is there").file_name()).collect();
        names.sort();
        assert_eq!(names, ["a folder", "chunked", "eager", "empty.txt", "hello.txt", "numbers", "sized"]);
        site.stop();
    });
}

#[test]
fn the_api_speaks_json() {
    let program = peer!("curl");
    everywhere(|procs| {
        let site = Site::with(procs, &["--debug"]);
        let ask = |args: &[&str], path: &str| {
            let (status, text) = curl(&program, &[args, &[&site.url(path)]].concat(), b"");
            (status, String::from_utf8(text).expect("text"))
        };
        let sum = |numbers: &str| ask(&["-d", &format!("{{\"numbers\": {numbers}}}")], "/api/sum");
        assert_eq!(sum("[1, 2, -5]"), (200, r#"{"sum":-2,"count":3}"#.to_owned()));
        assert_eq!(sum("[]"), (200, r#"{"sum":0,"count":0}"#.to_owned()));
        assert_eq!(sum("[9223372036854775807, 1]").0, 422);
        assert_eq!(sum("[1.5]").0, 400);
        assert_eq!(
            ask(&["-d", r#"{"a": ["ü", null, 1e3]}"#], "/api/echo"),
            (200, r#"{"a":["ü",null,1000.0]}"#.to_owned())
        );
        assert_eq!(ask(&["-d", "{"], "/api/echo").0, 400);
        assert!(ask(&[], "/api/time").1.starts_with(r#"{"unix_ms":"#));
        assert_eq!(ask(&[], "/api/sum").0, 405);
        assert_eq!(ask(&[], "/api/other").0, 404);
        // The values are nested as deep as the parser goes, and deeper, on a goroutine's stack.
        for (depth, status) in [(127, 200), (128, 400), (100_000, 400)] {
            let nested = "[".repeat(depth) + &"]".repeat(depth);
            let mut command = program.command();
            command.args([
                "-sS",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--data-binary",
                "@-",
                &site.url("/api/echo"),
            ]);
            assert_eq!(run_with_input(&mut command, nested.as_bytes()).good(), status.to_string(), "{depth}");
        }
        // A handler that panics ends only its own connection.
        assert_eq!(ask(&[], "/api/panic"), (500, "the handler has panicked\n".to_owned()));
        assert!(site.server.complaint().contains("panicked"));
        assert_eq!(ask(&[], "/hello.txt").0, 200);
        site.stop();
    });
}

/// Fails if the server serves a file outside of the folder: by dots, encoded dots and separators, or by symbolic links. Links
/// that stay inside are followed.
#[test]
fn no_path_leads_out_of_the_folder() {
    let program = peer!("curl");
    everywhere(|procs| {
        let site = Site::with(procs, &["--writable"]);
        let www = site.scratch.join("www");
        for (target, link) in
            [("../secret.txt", "out"), ("..", "up"), ("/", "root"), ("hello.txt", "inside"), ("loop", "loop")]
        {
            std::os::unix::fs::symlink(target, www.join(link)).expect("the folder is ours");
        }
        assert_eq!(run(std::process::Command::new("mkfifo").arg(www.join("fifo"))).good(), "");
        let secret = site.scratch.join("secret.txt");
        let absolute = format!("/{}", secret.display());
        for (path, status) in [
            ("/../secret.txt", 400),
            ("/a%20folder/../../secret.txt", 400),
            ("/%2e%2e/secret.txt", 400),
            ("/..%2fsecret.txt", 400),
            ("/%2e%2e%2fsecret.txt", 400),
            ("/..%5csecret.txt", 400),
            ("/hello.txt%00.html", 400),
            ("/%", 400),
            ("/%+1", 400),
            ("/%ff", 400),
            (&*absolute, 404),
            ("/out", 404),
            ("/up/secret.txt", 404),
            ("/root/etc/passwd", 404),
            ("/loop", 404),
            ("/fifo", 404),
            ("/hello.txt/", 404),
            ("/.hidden", 404),
            ("/inside", 200),
            ("//hello.txt", 200),
        ] {
            let (got, text) = curl(&program, &["--path-as-is", &site.url(path)], b"");
            assert_eq!(got, status, "{path}");
            assert_ne!(text, b"secret", "{path}");
            if status != 200 {
                let (got, _) =
                    curl(&program, &["--path-as-is", "-T", "-", &site.url(&format!("{path}/new"))], b"x");
                assert!(matches!(got, 400 | 404), "PUT below {path}: {got}");
            }
        }
        // The upload replaces the link, not the file that the link leads to.
        assert_eq!(curl(&program, &["-T", "-", &site.url("/out")], b"mine").0, 204);
        assert_eq!(fs::read(&secret).expect("it is there"), b"secret");
        assert_eq!(curl(&program, &[&site.url("/out")], b"").1, b"mine");
        assert_eq!(curl(&program, &["-T", "-", &site.url("/up")], b"x").0, 204);
        assert_eq!(curl(&program, &["-T", "-", &site.url("/a%20folder")], b"x").0, 409);
        site.stop();
    });
}
