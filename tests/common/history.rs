//! A record of what was done to a channel, and when, and a check that a channel may do that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Send,
    Recv,
    Close,
    DropSender,
    DropReceiver,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The value changed hands; this call closed; the handle is gone.
    Done,
    /// Full, empty, too late; closed already.
    Not,
    Closed,
    /// The send of a select with a limit was chosen, and failed: closed, or the receiver left and no other came in time.
    Left,
    /// An arm of a select that another arm ended.
    Elsewhere,
}

impl Outcome {
    pub fn without_value(was_open: bool) -> Self {
        if was_open { Outcome::Not } else { Outcome::Closed }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub channel: usize,
    pub kind: Kind,
    /// Stamps from before the operation and from after it.
    pub begin: u64,
    pub end: u64,
    pub outcome: Outcome,
    pub value: usize,
}

struct Shared {
    clock: AtomicU64,
    made: AtomicUsize,
    drops: Box<[AtomicUsize]>,
}

/// A value that tells how often it was dropped.
pub struct Value {
    pub id: usize,
    shared: Arc<Shared>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.shared.drops[self.id].fetch_add(1, SeqCst);
    }
}

/// The events of one member. A clone starts with none, on the same clock.
pub struct Log {
    shared: Arc<Shared>,
    pub events: Vec<Event>,
}

impl Clone for Log {
    fn clone(&self) -> Self {
        Log { shared: Arc::clone(&self.shared), events: Vec::new() }
    }
}

impl Log {
    pub fn new(most_values: usize) -> Self {
        let drops = (0..most_values).map(|_| AtomicUsize::new(0)).collect();
        let shared = Shared { clock: AtomicU64::new(0), made: AtomicUsize::new(0), drops };
        Log { shared: Arc::new(shared), events: Vec::new() }
    }

    pub fn stamp(&self) -> u64 {
        self.shared.clock.fetch_add(1, SeqCst)
    }

    pub fn value(&self) -> Value {
        Value { id: self.shared.made.fetch_add(1, SeqCst), shared: Arc::clone(&self.shared) }
    }

    /// Notes an operation without a value, which began at `begin` and ends now.
    pub fn event(&mut self, channel: usize, kind: Kind, begin: u64, outcome: Outcome) {
        let end = self.stamp();
        self.events.push(Event { channel, kind, begin, end, outcome, value: usize::MAX });
    }

    pub fn sent(&mut self, channel: usize, begin: u64, outcome: Outcome, value: usize) {
        let end = self.stamp();
        self.events.push(Event { channel, kind: Kind::Send, begin, end, outcome, value });
    }

    pub fn received(&mut self, channel: usize, begin: u64, got: Result<Value, Outcome>) {
        let end = self.stamp();
        let (outcome, value) = match &got {
            Ok(value) => (Outcome::Done, value.id),
            Err(outcome) => (*outcome, usize::MAX),
        };
        self.events.push(Event { channel, kind: Kind::Recv, begin, end, outcome, value });
    }

    #[track_caller]
    pub fn every_value_was_dropped_once(&self) {
        let made = self.shared.made.load(SeqCst);
        let drops: Vec<_> = self.shared.drops[..made].iter().map(|drops| drops.load(SeqCst)).collect();
        assert!(drops.iter().all(|&drops| drops == 1), "drops of each value: {drops:?}");
    }
}

/// Checks that a channel of this capacity, with `handles` handles on each side, may do that. In the end all messages were
/// received.
pub fn judge(events: &[Event], capacity: Option<usize>, handles: usize) {
    let of =
        |kind, outcome| events.iter().filter(move |event| event.kind == kind && event.outcome == outcome);
    let sends: Vec<_> = of(Kind::Send, Outcome::Done).collect();
    let recvs: Vec<_> = of(Kind::Recv, Outcome::Done).collect();
    // Each message is received exactly once. `pairs` holds each send and the receive of its value.
    assert_eq!(sends.len(), recvs.len(), "sent and received: {events:#?}");
    let pairs: Vec<_> = sends
        .iter()
        .map(|send| {
            let mut taken = recvs.iter().filter(|recv| recv.value == send.value);
            let recv = taken.next().unwrap_or_else(|| panic!("{send:?}: nobody received it"));
            assert!(taken.next().is_none(), "{send:?}: received twice");
            assert!(send.begin < recv.end, "{recv:?}: before {send:?}");
            (*send, *recv)
        })
        .collect();
    // Messages come in order.
    for (first, got_first) in &pairs {
        for (second, got_second) in &pairs {
            let overtaken = first.end < second.begin && got_second.end < got_first.begin;
            assert!(
                !overtaken,
                "{second:?}, received {got_second:?}, overtook {first:?}, received {got_first:?}"
            );
        }
    }
    // The messages in the channel are within its capacity, at each moment at which a send came back.
    for (now, _) in &pairs {
        let sent = pairs.iter().filter(|(send, _)| send.end <= now.end).count();
        let asked = pairs.iter().filter(|(_, recv)| recv.begin < now.end).count();
        assert!(
            capacity.is_none_or(|capacity| sent <= asked + capacity),
            "{now:?}: {sent} sent, {asked} asked for"
        );
    }
    judge_ends(events, &pairs, handles);
    judge_refusals(events, &pairs, capacity);
}

/// Checks that nothing comes after the close, and no error before the close or before all was received.
fn judge_ends(events: &[Event], pairs: &[(&Event, &Event)], handles: usize) {
    let closes = || events.iter().filter(|event| event.kind == Kind::Close);
    assert!(closes().filter(|close| close.outcome == Outcome::Done).count() <= 1, "two calls closed");
    let closed_from = closes().map(|close| close.end).min().unwrap_or(u64::MAX);
    let closed_to = closes().map(|close| close.begin).min().unwrap_or(u64::MAX);
    let gone = |kind| {
        let drops: Vec<_> =
            events.iter().filter(|event| event.kind == kind).map(|event| event.begin).collect();
        if drops.len() == handles { drops.into_iter().max().unwrap_or(u64::MAX) } else { u64::MAX }
    };
    let (no_sender, no_receiver) = (gone(Kind::DropSender), gone(Kind::DropReceiver));
    for event in events {
        match (event.kind, event.outcome) {
            (Kind::Send, Outcome::Done | Outcome::Not) => {
                assert!(event.begin < closed_from, "{event:?}: it was closed at {closed_from}");
            }
            (Kind::Send, Outcome::Closed) => {
                assert!(closed_to.min(no_receiver) < event.end, "{event:?}: it was open");
            }
            (Kind::Send, Outcome::Left) if closed_to.min(no_receiver) > event.end => {
                // A receiver that left looks once more, and may end in any way.
                let receives = events.iter().filter(|other| other.kind == Kind::Recv);
                let met = receives.filter(|other| other.begin < event.end && event.begin < other.end).count();
                assert!(met > 0, "{event:?}: it was open, and no receiver left");
            }
            (Kind::Recv, Outcome::Closed) => {
                assert!(closed_to.min(no_sender) < event.end, "{event:?}: it was open");
                let left = pairs.iter().find(|(send, recv)| send.end < event.begin && recv.begin > event.end);
                assert!(left.is_none(), "{event:?}: but there was still {left:?}");
            }
            (Kind::Recv, Outcome::Not) if closed_from < event.begin => {
                // A send that was chosen before the close may still bring its message.
                let comes = pairs.iter().any(|(send, _)| send.begin < event.end && send.end > event.begin);
                assert!(comes, "{event:?}: it was closed at {closed_from}, and nothing on its way");
            }
            _ => {}
        }
    }
}

/// Checks that no caller is told that the channel is empty while a message is there, or that it is full while there is room.
fn judge_refusals(events: &[Event], pairs: &[(&Event, &Event)], capacity: Option<usize>) {
    for event in events.iter().filter(|event| event.outcome == Outcome::Not) {
        match event.kind {
            Kind::Recv => {
                let left = pairs.iter().find(|(send, recv)| send.end < event.begin && recv.begin > event.end);
                assert!(left.is_none(), "{event:?}: but there was {left:?}");
            }
            Kind::Send => {
                let begun = pairs.iter().filter(|(send, _)| send.begin < event.end).count();
                let taken = pairs.iter().filter(|(_, recv)| recv.end < event.begin).count();
                let room = capacity.is_none_or(|capacity| begun < capacity + taken);
                assert!(!room, "{event:?}: {begun} begun, {taken} taken");
            }
            _ => {}
        }
    }
}
