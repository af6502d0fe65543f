//! Sockets under a context: an operation that waits returns the context's error, and the next operation loses nothing.

use crate::unix::abstract_name;
use common::crew::{CREWS, Crew, Member, each, everyone, join_all};
use common::loopback::{listen, pair};
use gmp::context::{Cancel, Context, ContextError};
use gmp::net::{TcpStream, UnixListener};
use gmp::time::timeout;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn error_in(refused: &io::Error) -> Option<&ContextError> {
    refused.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Asserts that each operation ends when the context is cancelled: before its first wait, in the poller, or in the queue of the
/// I/O lock.
fn is_cancelled<'a>(
    crew: &Crew<'a>,
    (context, cancel): (Context, Cancel),
    waits: bool,
    f: impl FnMut() -> io::Result<usize> + Clone + Send + 'static,
) {
    let members = each(crew, 3, move |_| {
        let mut f = f.clone();
        context.run(|| f().unwrap_err()).expect("nothing is unwound")
    });
    if waits {
        members.iter().for_each(Member::until_it_waits);
    }
    cancel.cancel();
    for refused in join_all(members) {
        assert_eq!(error_in(&refused), Some(&ContextError::Canceled), "{refused:?}");
    }
}

/// Fails by an endless loop when the iterator returns the same error again and again.
#[test]
fn incoming_ends_with_the_context_and_not_with_a_deadline() {
    everyone(|crew| {
        for waits in [false, true] {
            let (context, cancel) = Context::background().with_cancel();
            let theirs = context.clone();
            let tcp = crew.go(move || {
                let (listener, _) = listen();
                let errors = || listener.incoming().take(3).map(|stream| stream.map(drop).unwrap_err());
                theirs.run(|| Vec::from_iter(errors())).expect("nothing is unwound")
            });
            let unix = crew.go(move || {
                let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
                let errors = || listener.incoming().take(3).map(|stream| stream.map(drop).unwrap_err());
                context.run(|| Vec::from_iter(errors())).expect("nothing is unwound")
            });
            let both = [tcp, unix];
            if waits {
                both.iter().for_each(Member::until_it_waits);
            }
            cancel.cancel();
            for errors in join_all(both.into()) {
                assert_eq!(errors.len(), 1);
                assert_eq!(error_in(&errors[0]), Some(&ContextError::Canceled));
            }
        }
        let late = crew.run(|| {
            let (listener, _) = listen();
            listener.set_deadline(Some(Instant::now())).unwrap();
            listener.incoming().take(3).count()
        });
        assert_eq!(late, 3);
        // A context that covers one step only does not end the iterator, either.
        crew.run(|| {
            let (listener, address) = listen();
            let mut incoming = listener.incoming();
            for _ in 0..2 {
                let step =
                    timeout(Duration::from_millis(50), || incoming.next().map(|stream| stream.map(drop)));
                assert_eq!(
                    error_in(&step.unwrap().unwrap().unwrap_err()),
                    Some(&ContextError::DeadlineExceeded)
                );
            }
            let _client = TcpStream::connect(address).unwrap();
            incoming.next().unwrap().unwrap();
        });
    });
}

/// Fails when the iterator continues as long as connections wait, as a server's does under load, or when it loses a connection
/// that waits.
#[test]
fn incoming_ends_with_the_context_while_connections_wait() {
    everyone(|crew| {
        crew.run(|| {
            let (listener, address) = listen();
            let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
            let (context, cancel) = Context::background().with_cancel();
            let mut incoming = listener.incoming();
            let streams = incoming.by_ref().inspect(|_| cancel.cancel());
            let steps: Vec<_> = context.run(|| streams.collect()).unwrap();
            assert!(
                matches!(&steps[..], [Ok(_), Err(error)] if error_in(error) == Some(&ContextError::Canceled)),
                "{steps:?}"
            );
            assert!(incoming.next().is_none(), "an iterator that has ended goes on");
            drop((steps, listener.incoming().take(2).map(Result::unwrap).collect::<Vec<_>>()));
            drop(clients);
        });
    });
}

/// Fails by a hang, when an operation is unwound, or when a cancelled read loses data.
#[test]
fn a_cancel_ends_every_wait_by_an_error() {
    everyone(|crew| {
        let context = || Context::background().with_cancel();
        for round in 0..CREWS / 2 {
            let (near, far) = pair();
            let near = Arc::new(near);
            let same = Arc::clone(&near);
            is_cancelled(crew, context(), round % 2 == 0, move || (&*same).read(&mut [0; 8]));
            let same = Arc::clone(&near);
            is_cancelled(crew, context(), round % 2 == 0, move || {
                (&*same).write_all(&vec![0; 64 << 20]).map(|()| 0)
            });
            let (listener, addr) = listen();
            let listener = Arc::new(listener);
            let same = Arc::clone(&listener);
            is_cancelled(crew, context(), round % 2 == 0, move || same.accept().map(|_| 0));
            (&far).write_all(b"after").unwrap();
            assert_eq!(crew.run(move || (&*near).read(&mut [0; 8])).unwrap(), 5);
            let client = crew.go(move || TcpStream::connect(addr).map(drop));
            crew.run(move || listener.accept().map(drop)).unwrap();
            client.join().unwrap();
        }
    });
}

/// Fails when the error has another kind than that of every deadline.
#[test]
fn a_context_whose_deadline_passes_gives_timed_out() {
    everyone(|crew| {
        crew.run(|| {
            let (near, _far) = pair();
            let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
            let refused = context.run(|| (&near).read(&mut [0; 8]).unwrap_err()).unwrap();
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            assert_eq!(error_in(&refused), Some(&ContextError::DeadlineExceeded));
        });
    });
}
