//! How many goroutines are in a file call, or in a name look-up, at once; and what happens to the goroutines that wait in line.

use super::fs::fifo;
use common::child;
use common::room::Room;
use common::slow_disk::{self, Hold, SLOW};
use common::talk::pattern;
use common::{dumps, runtime, until, watched};
use gmp::context::{Context, ContextError};
use gmp::fs::unix::FileExt;
use gmp::fs::{self, File};
use gmp::net::{self, DialConfig, TcpListener, TcpStream, UdpSocket};
use gmp::{JoinHandle, Runtime};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Holds calls for as long as the test wants: they ask for their path, or their addresses, and get them here.
#[derive(Default)]
struct Gate {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    /// The calls that have come in, in order.
    came: Vec<usize>,
    may_leave: usize,
    left: usize,
    most: usize,
}

impl Gate {
    /// Blocks the thread until the call may leave.
    fn pass(&self, who: usize) {
        let mut seen = self.seen.lock().unwrap();
        seen.came.push(who);
        seen.most = seen.most.max(seen.came.len() - seen.left);
        let mut seen = self.changed.wait_while(seen, |seen| seen.left == seen.may_leave).unwrap();
        seen.left += 1;
    }

    fn let_out(&self, count: usize) {
        self.seen.lock().unwrap().may_leave += count;
        self.changed.notify_all();
    }

    fn came(&self) -> Vec<usize> {
        self.seen.lock().unwrap().came.clone()
    }

    fn most(&self) -> usize {
        self.seen.lock().unwrap().most
    }
}

#[derive(Clone)]
struct Gated(Arc<Gate>, usize);

impl AsRef<Path> for Gated {
    fn as_ref(&self) -> &Path {
        self.0.pass(self.1);
        Path::new("/proc")
    }
}

impl ToSocketAddrs for Gated {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.0.pass(self.1);
        ("127.0.0.1", 0).to_socket_addrs().map(|addrs| addrs.collect::<Vec<_>>().into_iter())
    }
}

/// Returns a runtime in which at most `bound` file calls and `bound` look-ups are under way at once.
fn narrow(procs: usize, bound: usize) -> Runtime {
    let builder = Runtime::builder().procs(procs).max_file_calls(bound).max_lookups(bound);
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { builder.build() }.unwrap()
}

fn state(rt: &Runtime, id: u64) -> Option<String> {
    dumps::read(&rt.dump()).into_iter().find(|g| g.0 == id).map(|g| g.1.to_owned())
}

fn until_in_line<T>(rt: &Runtime, goroutine: &JoinHandle<T>) {
    until(|| state(rt, goroutine.id().get()).is_some_and(|state| state.contains(", in line")));
}

/// Two calls are under way, three come one after the other, and all leave one after the other.
fn first_come_first_served(call: fn(Gated), calls: &str) {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 2), Arc::new(Gate::default()));
            let go = |who| {
                let gated = Gated(Arc::clone(&gate), who);
                rt.go(move || call(gated))
            };
            let first = [go(0), go(1)];
            until(|| gate.came().len() == 2);
            assert!(rt.dump().contains(&format!("\n{calls}: 2 under way, of at most 2; 0 wait in line\n")));
            let later: Vec<_> = (2..5)
                .map(|who| {
                    let waits = go(who);
                    until_in_line(&rt, &waits);
                    waits
                })
                .collect();
            assert!(rt.dump().contains(&format!("\n{calls}: 2 under way, of at most 2; 3 wait in line\n")));
            let load = rt.handle().load();
            let lines = [(load.file_calls, load.file_calls_in_line), (load.lookups, load.lookups_in_line)];
            assert_eq!(lines, if calls == "file calls" { [(2, 3), (0, 0)] } else { [(0, 0), (2, 3)] });
            // Other goroutines run meanwhile.
            assert_eq!(rt.go(|| 5).join().unwrap(), 5);
            for count in 3..=5 {
                gate.let_out(1);
                until(|| gate.came().len() == count);
            }
            gate.let_out(2);
            first.into_iter().chain(later).for_each(|goroutine| goroutine.join().unwrap());
            assert_eq!(gate.came()[2..], [2, 3, 4]);
            assert_eq!(gate.most(), 2);
            assert!(!rt.dump().contains(calls));
        });
    }
}

/// Fails when a third call is under way, or when a goroutine overtakes another or is forgotten.
#[test]
fn file_calls_are_first_come_first_served() {
    first_come_first_served(|gated| assert!(fs::exists(gated).unwrap()), "file calls");
}

/// Fails as the test above.
#[test]
fn name_look_ups_are_first_come_first_served() {
    first_come_first_served(|gated| drop(UdpSocket::bind(gated).unwrap()), "name look-ups");
}

/// Fails by a hang when a goroutine that opens a FIFO, or uses one that std has opened, waits for its turn behind a call that
/// may last.
#[test]
fn a_full_line_holds_no_fifo_up() {
    // SAFETY: the kernel refuses an argument that has no size.
    unsafe { libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, c"/".as_ptr(), std::ptr::null::<()>(), 0) };
    if io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        common::skipped("here is no openat2");
        return;
    }
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate, room) = (narrow(procs, 1), Arc::new(Gate::default()), Arc::new(Room::new()));
            fifo(&room.join("fifo"));
            std::fs::write(room.join("file"), "calm").unwrap();
            let gated = Gated(Arc::clone(&gate), 0);
            let holds = rt.go(move || fs::exists(gated).unwrap());
            until(|| gate.came().len() == 1);
            let same = Arc::clone(&room);
            let in_line = rt.go(move || fs::read_to_string(same.join("file")).unwrap());
            until_in_line(&rt, &in_line);
            let passes = rt.go(move || {
                let path = room.join("fifo");
                let mut both = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let theirs = std::fs::File::options().read(true).write(true).open(&path).unwrap();
                File::from(theirs).write_all(b"hello").unwrap();
                let mut bytes = [0; 5];
                both.read_exact(&mut bytes).unwrap();
                bytes
            });
            assert_eq!(passes.join().unwrap(), *b"hello");
            assert!(state(&rt, in_line.id().get()).unwrap().contains(", in line"));
            gate.let_out(1);
            assert!(holds.join().unwrap());
            assert_eq!(in_line.join().unwrap(), "calm");
        });
    }
}

/// Fails when the interrupted goroutine still waits, makes the call, or keeps a turn; or when a goroutine behind it still
/// waits.
#[test]
fn a_context_ends_the_wait_in_line_and_not_the_call() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = |who| Gated(Arc::clone(&gate), who);
            let exists = |gated: Gated| move || fs::exists(gated);
            let (context, cancel) = Context::background().with_cancel();
            let under = |gated| {
                let context = context.clone();
                rt.go(move || context.run(exists(gated)).expect("nothing is unwound"))
            };
            let in_the_call = under(gated(0));
            until(|| gate.came().len() == 1);
            let in_line = under(gated(1));
            until_in_line(&rt, &in_line);
            let aborted = rt.handle().go_abortable(exists(gated(2))).unwrap();
            until_in_line(&rt, &aborted.0);
            let behind = rt.go(exists(gated(3)));
            until_in_line(&rt, &behind);
            cancel.cancel();
            let refused = in_line.join().unwrap().unwrap_err();
            let error = refused.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(error, Some(&ContextError::Canceled), "{refused:?}");
            aborted.1.abort();
            assert!(aborted.0.join().unwrap().is_err());
            gate.let_out(2);
            // The call that was under way has come to its own end.
            assert!(in_the_call.join().unwrap().unwrap());
            assert!(behind.join().unwrap().unwrap());
            assert_eq!(gate.came(), [0, 3]);
        });
    }
}

/// Fails by a hang when a send waits in line for a name although its socket was closed, or its new deadline has passed; or when
/// a send gives up, or is forgotten, after the deadline was moved.
#[test]
fn a_close_or_a_deadline_ends_a_sends_wait_in_line() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = |who| Gated(Arc::clone(&gate), who);
            let first = gated(0);
            let in_the_call = rt.go(move || drop(UdpSocket::bind(first).unwrap()));
            until(|| gate.came().len() == 1);
            let [closed, late, moved] = [(); 3].map(|()| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
            let send = |socket: &Arc<UdpSocket>, who| {
                let (socket, to) = (Arc::clone(socket), gated(who));
                let sends = rt.go(move || socket.send_to(b"x", to).unwrap_err());
                until_in_line(&rt, &sends);
                sends
            };
            let of_closed = [send(&closed, 1), send(&closed, 2)];
            let (of_late, of_moved) = (send(&late, 3), send(&moved, 4));
            closed.close().unwrap();
            for sends in of_closed {
                assert!(gmp::net::is_closed(&sends.join().unwrap()));
            }
            late.set_write_deadline(Some(Instant::now() + Duration::from_millis(5))).unwrap();
            assert_eq!(of_late.join().unwrap().kind(), ErrorKind::TimedOut);
            moved.set_write_deadline(Some(Instant::now() + Duration::from_secs(3600))).unwrap();
            moved.set_write_deadline(None).unwrap();
            gate.let_out(2);
            in_the_call.join().unwrap();
            // The send has come to its call: nothing can be sent to port 0.
            assert_eq!(of_moved.join().unwrap().kind(), ErrorKind::InvalidInput);
            assert_eq!(gate.came(), [0, 4]);
        });
    }
}

/// Fails when a dial waits in line beyond its time, looks a name up afterwards, or keeps its turn.
#[test]
fn a_dials_time_ends_the_wait_in_line() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = |who| Gated(Arc::clone(&gate), who);
            let bind = |gated: Gated| rt.go(move || drop(UdpSocket::bind(gated).unwrap()));
            let in_the_call = bind(gated(0));
            until(|| gate.came().len() == 1);
            let dials: [fn(Gated, Instant) -> io::Result<TcpStream>; 3] = [
                |gated, at| TcpStream::connect_deadline(gated, at),
                |gated, at| DialConfig::new().deadline(at).connect(gated),
                |gated, at| {
                    DialConfig::new()
                        .timeout((at - Instant::now()).max(Duration::from_nanos(1)))
                        .connect(gated)
                },
            ];
            for dial in dials {
                // Tries again with twice the time if the time was over before the call.
                for attempt in 0.. {
                    let (gated, at) = (gated(1), Instant::now() + Duration::from_millis(5 << attempt));
                    let refused = rt.go(move || dial(gated, at).unwrap_err()).join().unwrap();
                    assert!(Instant::now() >= at);
                    assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
                    if refused.to_string().contains("name look-up") {
                        break;
                    }
                    assert!(attempt < 8, "{refused}");
                }
            }
            let behind = bind(gated(2));
            until_in_line(&rt, &behind);
            gate.let_out(2);
            [in_the_call, behind].into_iter().for_each(|goroutine| goroutine.join().unwrap());
            assert_eq!(gate.came(), [0, 2]);
            // No name is looked up for which there is no time left.
            let late = gated(3);
            let late = move || TcpStream::connect_deadline(late, Instant::now()).unwrap_err();
            assert_eq!(rt.go(late).join().unwrap().kind(), ErrorKind::TimedOut);
            assert_eq!(gate.came(), [0, 2]);
        });
    }
}

/// Fails when the program's own look-up is made without a turn, waits in line beyond its deadline or the end of its context, or
/// keeps its turn.
#[test]
fn a_programs_own_look_up_waits_in_line() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = |who| Gated(Arc::clone(&gate), who);
            let looks_up = |gated: Gated| rt.go(move || net::lookup(gated).unwrap().next());
            let in_the_call = looks_up(gated(0));
            until(|| gate.came().len() == 1);
            let (context, cancel) = Context::background().with_cancel();
            let ends = gated(1);
            let ends = rt.go(move || context.run(|| net::lookup(ends).unwrap_err()).expect("it is an error"));
            until_in_line(&rt, &ends);
            let late = gated(2);
            let late = rt.go(move || {
                let limit = Instant::now() + Duration::from_millis(5);
                net::lookup_deadline(late, limit).unwrap_err()
            });
            let in_time = gated(3);
            let in_time = rt.go(move || {
                let limit = Instant::now() + Duration::from_secs(3600);
                net::lookup_deadline(in_time, limit).unwrap().next()
            });
            until_in_line(&rt, &in_time);
            cancel.cancel();
            let refused = ends.join().unwrap();
            let error = refused.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(error, Some(&ContextError::Canceled), "{refused:?}");
            assert_eq!(late.join().unwrap().kind(), ErrorKind::TimedOut);
            // An address needs no look-up, in `lookup` as in the other calls.
            assert_eq!(rt.run(|| net::lookup("127.0.0.1:7").unwrap().count()), 1);
            gate.let_out(2);
            let expected = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
            assert_eq!((in_the_call.join().unwrap(), in_time.join().unwrap()), (expected, expected));
            assert_eq!(gate.came(), [0, 3]);
        });
    }
}

/// Fails by a hang when an address waits behind a look-up.
#[test]
fn an_address_is_no_name_and_does_not_wait_in_line() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = Gated(Arc::clone(&gate), 0);
            let in_the_call = rt.go(move || drop(UdpSocket::bind(gated).unwrap()));
            until(|| gate.came().len() == 1);
            rt.run(|| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let at = listener.local_addr().unwrap();
                TcpStream::connect(at.to_string()).unwrap();
                TcpStream::connect(("127.0.0.1", at.port())).unwrap();
                let in_time = Instant::now() + Duration::from_secs(60);
                TcpStream::connect_deadline(&("127.0.0.1".to_owned(), at.port()), in_time).unwrap();
                DialConfig::new().connect(&*at.to_string()).unwrap();
                let udp = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
                let to = udp.local_addr().unwrap().to_string();
                assert_eq!(udp.send_to(b"hello", &to).unwrap(), 5);
            });
            gate.let_out(1);
            in_the_call.join().unwrap();
        });
    }
}

/// Fails when a datagram waits in line beyond the time of its socket, or when its address is looked up afterwards.
#[test]
fn a_sockets_time_ends_the_wait_of_its_datagram_in_line() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let gated = |who| Gated(Arc::clone(&gate), who);
            let holds = gated(0);
            let in_the_call = rt.go(move || drop(UdpSocket::bind(holds).unwrap()));
            until(|| gate.came().len() == 1);
            let limits: [fn(&UdpSocket); 2] = [
                |udp| udp.set_write_timeout(Some(Duration::from_millis(5))).unwrap(),
                |udp| udp.set_write_deadline(Some(Instant::now() + Duration::from_millis(5))).unwrap(),
            ];
            for limit in limits {
                let gated = gated(1);
                let sends = rt.go(move || {
                    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                    limit(&udp);
                    udp.send_to(b"late", gated).unwrap_err()
                });
                assert_eq!(sends.join().unwrap().kind(), ErrorKind::TimedOut);
            }
            let gated = gated(2);
            let closed = rt.go(move || {
                let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                udp.close().unwrap();
                udp.send_to(b"closed", gated).unwrap_err()
            });
            assert!(gmp::net::is_closed(&closed.join().unwrap()));
            gate.let_out(1);
            in_the_call.join().unwrap();
            assert_eq!(gate.came(), [0]);
        });
    }
}

/// Fails when the turn of the goroutine that panicked is lost.
#[test]
fn a_panic_in_a_call_gives_the_turn_back() {
    struct Panics;
    impl AsRef<Path> for Panics {
        fn as_ref(&self) -> &Path {
            panic!("on purpose")
        }
    }
    for procs in [1, 4] {
        watched(procs, || {
            let rt = narrow(procs, 1);
            for _ in 0..3 {
                assert!(rt.go(|| fs::exists(Panics)).join().unwrap_err().is_panic());
                assert!(rt.go(|| fs::exists("/proc").unwrap()).join().unwrap());
            }
        });
    }
}

struct Writes(std::path::PathBuf);

impl Drop for Writes {
    fn drop(&mut self) {
        fs::write(&self.0, "dropped").unwrap();
        assert_eq!(fs::read(&self.0).unwrap(), b"dropped");
    }
}

/// A destructor waits in line while its goroutine unwinds, by a panic or by the end of the runtime. Fails when the destructor's
/// file calls are unwound, or never end.
#[test]
fn destructors_make_file_calls() {
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate, room) = (narrow(procs, 1), Arc::new(Gate::default()), Room::new());
            let gated = Gated(Arc::clone(&gate), 0);
            let holds = rt.go(move || fs::exists(gated));
            until(|| gate.came().len() == 1);
            let writes = Writes(room.join("by a panic"));
            let panics = rt.go(move || {
                let _writes = writes;
                panic!("on purpose");
            });
            until_in_line(&rt, &panics);
            gate.let_out(1);
            assert!(panics.join().unwrap_err().is_panic());
            assert!(holds.join().unwrap().unwrap());
            assert!(room.join("by a panic").exists());
            let writes = Writes(room.join("by the end"));
            let sleeps = rt.go(move || {
                let _writes = writes;
                gmp::time::sleep(Duration::MAX);
            });
            until(|| state(&rt, sleeps.id().get()).is_some_and(|state| state.starts_with("sleep")));
            let report = rt.shutdown(Duration::from_secs(60));
            assert!(report.is_clean(), "{report:?}");
            assert!(room.join("by the end").exists());
        });
    }
}

/// Fails when the end of the runtime waits for the call, or when goroutines in line are not unwound.
#[test]
fn a_runtime_ends_with_a_call_under_way() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    for procs in [1, 4] {
        watched(procs, || {
            let (rt, gate) = (narrow(procs, 1), Arc::new(Gate::default()));
            let dropped = Arc::new(AtomicUsize::new(0));
            let go = |who| {
                let (gated, counts) = (Gated(Arc::clone(&gate), who), Counts(Arc::clone(&dropped)));
                rt.go(move || {
                    let _counts = counts;
                    fs::exists(gated)
                })
            };
            let _in_the_call = go(0);
            until(|| gate.came().len() == 1);
            let lined: Vec<_> = (1..4).map(go).collect();
            lined.iter().for_each(|waits| until_in_line(&rt, waits));
            let report = rt.shutdown(Duration::from_millis(300));
            assert_eq!((report.goroutines_left(), dropped.load(SeqCst)), (1, 3), "{report:?}");
            assert!(lined.into_iter().all(|waits| waits.join().unwrap_err().is_shutdown()));
            // The thread that was left behind returns after its runtime has ended.
            gate.let_out(1);
            assert_eq!(gate.came(), [0]);
        });
    }
}

fn threads() -> usize {
    // Counts the threads without an `openat`, which would be one of the supervised calls.
    std::fs::metadata("/proc/self/task").unwrap().nlink() as usize - 2
}

/// The runtime's monitor takes no P away. At most `STEP` held calls go on at a time, once the bound is reached and the
/// bystander has slept. Fails by a hang when fewer calls are under way, or when the bystander waits for a call; when there are
/// more threads than the bound allows; or by bytes of another place.
#[test]
fn a_thousand_read_a_slow_disk_and_no_one_else_is_stalled() {
    const NAME: &str = "a_thousand_read_a_slow_disk_and_no_one_else_is_stalled";
    const READERS: usize = 1000;
    const PART: usize = 64;
    const BOUND: usize = 64;
    const CALLS: usize = READERS + 2 * BOUND;
    const STEP: usize = 8;
    if !child::is_child() {
        child::passes(NAME, &[("GMPDEBUG", "handoff=0")]);
        return;
    }
    let (room, bytes) = (Room::new(), Arc::new(pattern(11, READERS * PART)));
    let path = room.join("file").with_extension(&SLOW[1..]);
    std::fs::write(&path, &*bytes).unwrap();
    let slow = slow_disk::on_it(&std::fs::File::options().read(true).write(true).open(&path).unwrap());
    let file = Arc::new(File::from(slow));
    let held = slow_disk::begin(Hold::Steps { step: STEP, full: BOUND, all: CALLS });
    for procs in [1, 4] {
        watched(procs, || {
            let before = threads();
            let rt = runtime(procs);
            let over = Arc::new(AtomicBool::new(false));
            let (ends, beats) = (Arc::clone(&over), Arc::clone(&held));
            let bystander = rt.go(move || {
                let mut most = 0;
                while !ends.load(SeqCst) {
                    gmp::time::sleep(Duration::from_millis(1));
                    most = most.max(threads());
                    beats.beat();
                }
                most
            });
            let readers: Vec<_> = (0..READERS)
                .map(|reader| {
                    let (file, bytes) = (Arc::clone(&file), Arc::clone(&bytes));
                    rt.go(move || {
                        let mut part = [0; PART];
                        file.read_exact_at(&mut part, (reader * PART) as u64).unwrap();
                        assert!(part == bytes[reader * PART..][..PART]);
                    })
                })
                .collect();
            let opens = (0..BOUND).map(|_| {
                let path = path.clone();
                rt.go(move || {
                    assert_eq!(File::open(path).unwrap().metadata().unwrap().len(), (READERS * PART) as u64)
                })
            });
            let syncs = (0..BOUND).map(|_| {
                let file = Arc::clone(&file);
                rt.go(move || file.sync_all().unwrap())
            });
            let others: Vec<_> = opens.chain(syncs).collect();
            readers.into_iter().chain(others).for_each(|goroutine| goroutine.join().unwrap());
            over.store(true, SeqCst);
            let most = bystander.join().unwrap();
            println!("{procs} Ps: {most} threads, {before} before");
            assert_eq!(held.count_and_most(), (CALLS, BOUND));
            // On a busy machine the threads whose calls went on last are not at rest before the next calls come.
            assert!(most - before <= BOUND + 2 * STEP, "{most} threads, {before} before");
        });
    }
}

/// A path, or addresses; each use and each drop makes two calls of their kind.
struct Nests(Arc<AtomicUsize>, fn());

impl Nests {
    fn calls(&self) {
        (self.1)();
        // A wait of another kind between the two calls.
        gmp::time::sleep(Duration::from_millis(1));
        (self.1)();
        self.0.fetch_add(1, SeqCst);
    }
}

impl AsRef<Path> for Nests {
    fn as_ref(&self) -> &Path {
        self.calls();
        Path::new("/proc")
    }
}

impl ToSocketAddrs for Nests {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.calls();
        ("127.0.0.1", 0).to_socket_addrs().map(|addrs| addrs.collect::<Vec<_>>().into_iter())
    }
}

impl Drop for Nests {
    fn drop(&mut self) {
        self.calls();
    }
}

/// Fails by a hang when a goroutine that has a turn waits for another one, alone, or together with as many goroutines as there
/// are turns.
#[test]
fn a_call_within_a_call_needs_no_second_turn() {
    const COUNT: usize = 20;
    for (procs, bound) in [(1, 1), (4, 1), (1, 4), (4, 4)] {
        watched(procs, || {
            let (rt, calls) = (narrow(procs, bound), Arc::new(AtomicUsize::new(0)));
            let all: Vec<_> = (0..COUNT)
                .map(|number| {
                    let nests = |call| Nests(Arc::clone(&calls), call);
                    let path = nests(|| assert!(fs::exists("/proc").unwrap()));
                    let addrs = nests(|| drop(UdpSocket::bind("localhost:0").unwrap()));
                    rt.go(move || match number % 2 {
                        0 => assert!(fs::exists(path).unwrap()),
                        _ => drop(UdpSocket::bind(addrs).unwrap()),
                    })
                })
                .collect();
            all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            // Each goroutine has two values: one makes its calls at its use and at its drop, the other at its drop only.
            assert_eq!(calls.load(SeqCst), 3 * COUNT);
            // All turns have been given back.
            let gate = Arc::new(Gate::default());
            let full: Vec<_> = (0..bound)
                .map(|who| {
                    let gated = Gated(Arc::clone(&gate), who);
                    rt.go(move || fs::exists(gated).unwrap())
                })
                .collect();
            until(|| gate.came().len() == bound);
            gate.let_out(bound);
            full.into_iter().for_each(|goroutine| assert!(goroutine.join().unwrap()));
            assert!(!rt.dump().contains("file calls"));
        });
    }
}
