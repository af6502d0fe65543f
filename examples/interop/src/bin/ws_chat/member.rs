//! The members of the room, the messages that wait for each, and the reason why a member has to go.

use gmp::chan::{self, Receiver, Sender};
use gmp::net::TcpStream;
use gmp::sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tungstenite::Bytes;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

/// Why the server ends a connection. A close frame tells the member.
pub type Reason = (CloseCode, String);

pub struct Member {
    name: String,
    stream: Arc<TcpStream>,
    queue: Sender<Bytes>,
    reason: Mutex<Option<Reason>>,
}

impl Member {
    /// Makes a member, and the receiver from which its writer takes frames.
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

    /// Closes the queue. The writer sends the queued frames and then the reason. The first reason stays.
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
    /// How many messages can wait for a member. With one more, the member has to go.
    pub waiting: usize,
    /// How long a slow member has to take the messages that wait for it.
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

    /// Removes a member and tells the others why it left. Nothing happens if it has left before, because the others know
    /// already.
    pub fn leave(&self, number: u64, why: &str) {
        let left = self.members.lock().remove(&number);
        if let Some(member) = left {
            self.say(&format!("* {} left: {why}", member.name));
        }
    }

    /// Queues `text` for all members, and waits for none of them. A member whose queue is full has to go; the others are told
    /// so, and that message can be one too many for the next member. The lock makes all members see the messages in the same
    /// order.
    pub fn say(&self, text: &str) {
        // The texts are in a list, because nested calls would be as deep as the number of slow members.
        let mut to_say = VecDeque::from([text.to_owned()]);
        while let Some(text) = to_say.pop_front() {
            for member in self.queue_for_all(text) {
                // A member that was leaving already is not slow.
                if member.queue.is_closed() {
                    continue;
                }
                self.slow.fetch_add(1, Relaxed);
                member.leave(Some((
                    CloseCode::Again,
                    format!("{} messages were waiting for you", self.waiting),
                )));
                let _it_is_closed_already = member.stream.set_deadline(Some(Instant::now() + self.grace));
                eprintln!("{}: too slow", member.name);
                to_say.push_back(format!("* {} left: too slow", member.name));
            }
        }
    }

    /// Queues `text` for all members. Returns those that have no room for one more message. They are no longer members.
    fn queue_for_all(&self, text: String) -> Vec<Arc<Member>> {
        let frame = encoded(Frame::message(text, OpCode::Data(Data::Text), true));
        let no_room = |_: &u64, member: &mut Arc<Member>| member.queue.try_send(frame.clone()).is_err();
        let gone = self.members.lock().extract_if(.., no_room).map(|(_, member)| member).collect();
        self.said.fetch_add(1, Relaxed);
        gone
    }
}

/// Encodes a frame as it goes over the wire. A server's frames are not masked, so all members can share one encoding.
pub fn encoded(frame: Frame) -> Bytes {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.format(&mut bytes).expect("a vector takes all");
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmp::net::TcpListener;

    /// Fails by an overflow of the goroutine's stack. Each member has room for one message more than the member before, so the
    /// message that one member has left throws out the next.
    #[test]
    fn a_room_full_of_slow_members_is_emptied_on_a_small_stack() {
        const MEMBERS: usize = 600;
        // SAFETY: the goroutine keeps nothing of a thread across a call that parks.
        let runtime = unsafe { gmp::Runtime::builder().stack_size(64 << 10).build() }.expect("a runtime");
        runtime.run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            let stream = listener.local_addr().and_then(TcpStream::connect).expect("it listens");
            let stream = Arc::new(stream);
            let room = Room::new(MEMBERS, Duration::from_secs(1));
            // The receivers are kept to the end: a member whose writer has gone is leaving.
            let mut writers = Vec::new();
            for number in 1..=MEMBERS {
                let (member, to_send) = Member::new(format!("m{number}"), &stream, number);
                room.members.lock().insert(number as u64, member);
                writers.push(to_send);
            }
            room.say("one");
            room.say("two");
            assert_eq!((room.members.lock().len(), room.slow.load(Relaxed)), (0, MEMBERS as u64));
            assert_eq!(room.said.load(Relaxed), MEMBERS as u64 + 2);
        });
    }
}
