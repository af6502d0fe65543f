//! Random programs over channels, checked against the definition of a channel: each value in one place, in order, within the
//! capacity.
//!
//! A program is made from a seed, which the message of a failure names; its schedule is the machine's.

use common::crew::{CREWS, Crew, Member, each, everyone, join_all};
use common::history;
use common::history::{Event, Kind, Log, Outcome, Value};
use common::random::{Random, rounds};
use common::until;
use gmp::chan::{
    Receiver, RecvError, Select, SendError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
    never, unbounded,
};
use gmp::select;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const STEPS: usize = 12;
/// A program whose members all wait for each other is ended after this time: its channels are closed.
const GIVE_UP_AFTER: Duration = Duration::from_millis(1);
const CAPACITIES: [Option<usize>; 4] = [Some(0), Some(1), Some(2), None];

type Channel = (Option<Sender<Value>>, Option<Receiver<Value>>);

/// One of the members that run a program.
struct Worker {
    channels: Vec<Channel>,
    random: Random,
    log: Log,
    progress: Arc<AtomicUsize>,
}

impl Worker {
    fn work(mut self) -> Vec<Event> {
        for _ in 0..STEPS {
            self.random.pause(60);
            self.step();
            self.progress.fetch_add(1, SeqCst);
        }
        for channel in 0..self.channels.len() {
            self.leave(channel, true);
            self.leave(channel, false);
        }
        self.log.events
    }

    fn step(&mut self) {
        let channel = self.random.below(self.channels.len() as u64) as usize;
        match self.random.below(40) {
            0..10 => self.send(channel),
            10..20 => self.receive(channel),
            20..38 => self.select(),
            38 => self.close(channel),
            _ => {
                let sender = self.random.below(2) == 0;
                self.leave(channel, sender);
            }
        }
    }

    fn limit(&mut self) -> Duration {
        Duration::from_nanos(self.random.below(100_000))
    }

    fn send(&mut self, channel: usize) {
        let (way, limit) = (self.random.below(3), self.limit());
        let Some(s) = &self.channels[channel].0 else { return };
        let value = self.log.value();
        let id = value.id;
        let begin = self.log.stamp();
        let (outcome, back) = match way {
            0 => match s.send(value) {
                Ok(()) => (Outcome::Done, None),
                Err(error) => (Outcome::Closed, Some(error.into_inner())),
            },
            1 => match s.try_send(value) {
                Ok(()) => (Outcome::Done, None),
                Err(TrySendError::Full(value)) => (Outcome::Not, Some(value)),
                Err(TrySendError::Disconnected(value)) => (Outcome::Closed, Some(value)),
            },
            _ => match s.send_timeout(value, limit) {
                Ok(()) => (Outcome::Done, None),
                Err(SendTimeoutError::Timeout(value)) => (Outcome::Not, Some(value)),
                Err(SendTimeoutError::Disconnected(value)) => (Outcome::Closed, Some(value)),
            },
        };
        assert!(back.is_none_or(|value| value.id == id), "another value came back");
        self.log.sent(channel, begin, outcome, id);
    }

    fn receive(&mut self, channel: usize) {
        let (way, limit) = (self.random.below(3), self.limit());
        let Some(r) = &self.channels[channel].1 else { return };
        let begin = self.log.stamp();
        let got = match way {
            0 => r.recv().map_err(|_| Outcome::Closed),
            1 => r.try_recv().map_err(|error| error.is_empty()).map_err(Outcome::without_value),
            _ => r.recv_timeout(limit).map_err(|error| error.is_timeout()).map_err(Outcome::without_value),
        };
        self.log.received(channel, begin, got);
    }

    fn select(&mut self) {
        let arms = 1 + self.random.below(4);
        let arms: Vec<_> = (0..arms)
            .map(|_| (self.random.below(self.channels.len() as u64) as usize, self.random.below(2) == 0))
            .collect();
        let (way, limit) = (self.random.below(3), self.limit());
        let mut select = Select::new();
        let mut present = Vec::new();
        for (channel, sends) in arms {
            match &self.channels[channel] {
                (Some(s), _) if sends => drop(select.send(s)),
                (_, Some(r)) if !sends => drop(select.recv(r)),
                _ => continue,
            }
            present.push((channel, sends));
        }
        let begin = self.log.stamp();
        let chosen = match way {
            _ if present.is_empty() => return,
            0 => Some(select.select()),
            1 => select.try_select().ok(),
            _ => select.select_timeout(limit).ok(),
        };
        let Some(chosen) = chosen else {
            for (channel, sends) in present {
                let kind = if sends { Kind::Send } else { Kind::Recv };
                self.log.event(channel, kind, begin, Outcome::Not);
            }
            return;
        };
        let (channel, sends) = present.swap_remove(chosen.index());
        match &self.channels[channel] {
            (Some(s), _) if sends => {
                let value = self.log.value();
                let id = value.id;
                let outcome = match chosen.send(s, value) {
                    Ok(()) => Outcome::Done,
                    Err(error) => {
                        assert_eq!(error.into_inner().id, id);
                        if way == 0 { Outcome::Closed } else { Outcome::Left }
                    }
                };
                self.log.sent(channel, begin, outcome, id);
            }
            (_, Some(r)) => {
                let got = chosen.recv(r).map_err(|_| Outcome::Closed);
                self.log.received(channel, begin, got);
            }
            _ => unreachable!("it was there when it was added"),
        }
        for (channel, _) in present.into_iter().filter(|&(_, sends)| !sends) {
            self.log.event(channel, Kind::Recv, begin, Outcome::Elsewhere);
        }
    }

    fn close(&mut self, channel: usize) {
        let begin = self.log.stamp();
        let closed = match &self.channels[channel] {
            (Some(s), _) => s.close(),
            (_, Some(r)) => r.close(),
            _ => return,
        };
        let outcome = if closed { Outcome::Done } else { Outcome::Not };
        self.log.event(channel, Kind::Close, begin, outcome);
    }

    /// Drops its handle of one side.
    fn leave(&mut self, channel: usize, sender: bool) {
        let begin = self.log.stamp();
        let (there, kind) = match sender {
            true => (self.channels[channel].0.take().is_some(), Kind::DropSender),
            false => (self.channels[channel].1.take().is_some(), Kind::DropReceiver),
        };
        if there {
            self.log.event(channel, kind, begin, Outcome::Done);
        }
    }
}

/// Makes a program of this seed, lets the crew run it, and judges the log.
fn run(crew: &Crew<'_>, seed: usize) {
    let mut random = Random::new(seed);
    let workers = 2 + random.below(3) as usize;
    let capacities: Vec<_> = (0..1 + random.below(4)).map(|_| CAPACITIES[random.below(4) as usize]).collect();
    let log = Log::new(workers * STEPS);
    let progress = Arc::new(AtomicUsize::new(0));
    let channels: Vec<(Sender<Value>, Receiver<Value>)> =
        capacities.iter().map(|cap| cap.map_or_else(unbounded, bounded)).collect();
    let members = {
        let (log, progress, channels) = (log.clone(), Arc::clone(&progress), channels.clone());
        each(crew, workers, move |me| {
            let channels = channels.iter().map(|(s, r)| (Some(s.clone()), Some(r.clone()))).collect();
            let (log, progress) = (log.clone(), Arc::clone(&progress));
            Worker { channels, random: Random::new(seed * 8 + me), log, progress }.work()
        })
    };
    // Ends the members whose partners never come.
    let mut closer = log.clone();
    let (mut seen, mut since) = (0, Instant::now());
    until(|| {
        let now = progress.load(SeqCst);
        if now > seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > GIVE_UP_AFTER {
            for (channel, (s, _)) in channels.iter().enumerate() {
                let begin = closer.stamp();
                let outcome = if s.close() { Outcome::Done } else { Outcome::Not };
                closer.event(channel, Kind::Close, begin, outcome);
            }
            since = Instant::now();
        }
        seen == workers * STEPS
    });
    let mut events = join_all(members).concat();
    for (channel, (s, r)) in channels.into_iter().enumerate() {
        let begin = closer.stamp();
        drop(s);
        closer.event(channel, Kind::DropSender, begin, Outcome::Done);
        loop {
            let begin = closer.stamp();
            let got = r.recv().map_err(|_| Outcome::Closed);
            let ended = got.is_err();
            closer.received(channel, begin, got);
            if ended {
                break;
            }
        }
    }
    events.extend(closer.events);
    log.every_value_was_dropped_once();
    for (channel, &capacity) in capacities.iter().enumerate() {
        let here: Vec<_> = events.iter().filter(|event| event.channel == channel).copied().collect();
        history::judge(&here, capacity, workers + 1);
    }
}

/// Fails when a channel does what no channel may do; the message names the fault.
#[test]
fn random_programs_do_what_channels_do() {
    everyone(|crew| {
        for seed in 0..rounds(4000 / CREWS) {
            let _seed = TellSeed(seed);
            run(crew, seed);
        }
    });
}

/// Fails if a single goroutine, or thread, sees anything but a queue.
#[test]
fn a_lone_member_sees_a_queue() {
    everyone(|crew| {
        for seed in 0..rounds(2600 / CREWS) {
            crew.run(move || {
                let _seed = TellSeed(seed);
                alone(seed);
            });
        }
    });
}

fn alone(seed: usize) {
    let mut random = Random::new(seed);
    let capacity = [Some(0), Some(1), Some(2), Some(5), None][random.below(5) as usize];
    let (s, r) = capacity.map_or_else(unbounded, bounded);
    let (mut model, mut closed) = (VecDeque::new(), false);
    for message in 0..100_usize {
        let full = capacity == Some(model.len());
        let way = random.below(2) == 0;
        match random.below(10) {
            0..4 => {
                let sent = match way {
                    true => s.try_send(message),
                    false => select! {
                        send(s, message) -> sent => sent.map_err(TrySendError::from),
                        default => Err(TrySendError::Full(message)),
                    },
                };
                match (closed, full) {
                    (true, _) => assert_eq!(sent, Err(TrySendError::Disconnected(message))),
                    (false, true) => assert_eq!(sent, Err(TrySendError::Full(message))),
                    (false, false) => {
                        assert_eq!(sent, Ok(()));
                        model.push_back(message);
                    }
                }
            }
            4..8 => {
                let got = match way {
                    true => r.try_recv(),
                    false => select! {
                        recv(r) -> got => got.map_err(TryRecvError::from),
                        default => Err(TryRecvError::Empty),
                    },
                };
                let none = if closed { TryRecvError::Disconnected } else { TryRecvError::Empty };
                assert_eq!(got, model.pop_front().ok_or(none));
            }
            8 if random.below(20) == 0 => {
                assert_eq!(if way { s.close() } else { r.close() }, !closed);
                closed = true;
            }
            _ => assert!(r.try_iter().take(1).eq(model.pop_front())),
        }
        let full = capacity == Some(model.len());
        assert_eq!((s.len(), s.is_empty(), s.is_full()), (model.len(), model.is_empty(), full));
        assert_eq!((r.len(), r.is_empty(), r.is_full()), (model.len(), model.is_empty(), full));
        assert_eq!((s.is_closed(), r.is_closed()), (closed, closed));
    }
}

/// Fails if waiters are not served in their order, or if another member gets what is theirs.
#[test]
fn waiters_are_served_as_in_a_queue() {
    everyone(|crew| {
        for seed in 0..rounds(1300 / CREWS) {
            let _seed = TellSeed(seed);
            queued(crew, seed);
        }
    });
}

type Sends<'a> = Member<'a, Result<(), SendError<usize>>>;
type Receives<'a> = Member<'a, Result<usize, RecvError>>;

fn queued<'a>(crew: &Crew<'a>, seed: usize) {
    let mut random = Random::new(seed);
    let capacity = CAPACITIES[random.below(4) as usize];
    let (s, r) = capacity.map_or_else(unbounded, bounded);
    let mut buffer = VecDeque::new();
    let mut senders: VecDeque<(usize, Sends<'a>)> = VecDeque::new();
    let mut receivers: VecDeque<Receives<'a>> = VecDeque::new();
    for message in 0..15_usize {
        let by_select = random.below(2) == 0;
        let room = capacity.is_none_or(|capacity| buffer.len() < capacity);
        if random.below(2) == 0 {
            if let Some(receiver) = receivers.pop_front() {
                assert_eq!(s.try_send(message), Ok(()));
                assert_eq!(receiver.join(), Ok(message));
            } else if room {
                assert_eq!(s.try_send(message), Ok(()));
                buffer.push_back(message);
            } else {
                assert_eq!(s.try_send(message), Err(TrySendError::Full(message)));
                let (s, idle) = (s.clone(), never::<()>());
                let sender = crew.go(move || match by_select {
                    true => select! { send(s, message) -> sent => sent, recv(idle) -> _ => unreachable!() },
                    false => s.send(message),
                });
                sender.until_it_waits();
                senders.push_back((message, sender));
            }
        } else {
            let next = buffer.pop_front();
            let moves_up = senders.pop_front();
            if let Some((theirs, sender)) = moves_up {
                assert_eq!(r.recv(), Ok(next.unwrap_or(theirs)));
                buffer.extend(next.map(|_| theirs));
                assert_eq!(sender.join(), Ok(()));
            } else if let Some(next) = next {
                assert_eq!(r.try_recv(), Ok(next));
            } else {
                assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
                let (r, idle) = (r.clone(), never::<()>());
                let receiver = crew.go(move || match by_select {
                    true => select! { recv(r) -> got => got, recv(idle) -> _ => unreachable!() },
                    false => r.recv(),
                });
                receiver.until_it_waits();
                receivers.push_back(receiver);
            }
        }
    }
    assert!(s.close());
    senders.into_iter().for_each(|(message, sender)| assert_eq!(sender.join(), Err(SendError(message))));
    receivers.into_iter().for_each(|receiver| assert_eq!(receiver.join(), Err(RecvError)));
    assert!(r.iter().eq(buffer));
}

/// Tells the seed of the program that failed.
struct TellSeed(usize);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {}", self.0);
        }
    }
}
