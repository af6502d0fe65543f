//! Who is in the room: what waits to be sent to a member, and why it has to go.

use gmp::chan::{self, Receiver, Sender};
use gmp::net::TcpStream;
use gmp::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tungstenite::Bytes;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

/// Why the server ends a connection. The member is told by a close frame.
pub type Reason = (CloseCode, String);

pub struct Member {
    name: String,
    stream: Arc<TcpStream>,
    queue: Sender<Bytes>,
    reason: Mutex<Option<Reason>>,
}

impl Member {
    /// The member, and what its writer takes.
    pub fn new(name: String, stream: &Arc<TcpStream>, waiting: usize) -> (Arc<Self>, Receiver<Bytes>) {
        let (queue, to_send) = chan::bounded(waiting);
        (Arc::new(Member { name, stream: Arc::clone(stream), queue, reason: Mutex::new(None) }), to_send)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn queue(&self) -> &Sender<Bytes> {
        &self.queue
    }

    /// Nothing is queued any more; the writer sends what is, then the reason. The first reason stays.
    pub fn leave(&self, reason: Option<Reason>) {
        let mut kept = self.reason.lock();
        if self.queue.close() {
            *kept = reason;
        }
    }

    pub fn reason(&self) -> Option<Reason> {
        self.reason.lock().clone()
    }
}

#[derive(Default)]
pub struct Room {
    members: Mutex<BTreeMap<u64, Arc<Member>>>,
    numbers: AtomicU64,
    pub said: AtomicU64,
    pub slow: AtomicU64,
    /// How many messages may wait for a member. One more, and the member has to go.
    pub waiting: usize,
    /// How long a slow member has to take what waits for it.
    pub grace: Duration,
}

impl Room {
    pub fn new(waiting: usize, grace: Duration) -> Self {
        Room { waiting, grace, ..Room::default() }
    }

    pub fn enter(&self, member: &Arc<Member>) -> u64 {
        let number = self.numbers.fetch_add(1, Relaxed);
        self.members.lock().insert(number, Arc::clone(member));
        self.say(&format!("* {} joined", member.name));
        number
    }

    /// A member who is not there any more has left before, and that was said.
    pub fn leave(&self, number: u64, why: &str) {
        let left = self.members.lock().remove(&number);
        if let Some(member) = left {
            self.say(&format!("* {} left: {why}", member.name));
        }
    }

    /// Queues `text` for all. Waits for nobody: a member whose queue is full has to go. The lock has all members see the
    /// messages in the same order.
    pub fn say(&self, text: &str) {
        let frame = encoded(Frame::message(text.to_owned(), OpCode::Data(Data::Text), true));
        let mut slow = Vec::new();
        self.members.lock().retain(|_, member| {
            let taken = member.queue.try_send(frame.clone()).is_ok();
            if !taken {
                slow.push(Arc::clone(member));
            }
            taken
        });
        self.said.fetch_add(1, Relaxed);
        for member in slow {
            // One that was leaving already is not slow.
            if member.queue.is_closed() {
                continue;
            }
            self.slow.fetch_add(1, Relaxed);
            member.leave(Some((CloseCode::Again, format!("{} messages were waiting for you", self.waiting))));
            let _it_is_closed_already = member.stream.set_deadline(Some(Instant::now() + self.grace));
            eprintln!("{}: too slow", member.name);
            self.say(&format!("* {} left: too slow", member.name));
        }
    }
}

/// A frame as it goes over the wire. Frames of a server are not masked, so that one encoding is for all members.
pub fn encoded(frame: Frame) -> Bytes {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.format(&mut bytes).expect("a vector takes all");
    bytes.into()
}
