//! A bounded number of answers that are still valid.

use super::message::{Answer, Key};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// A longer answer is not kept, so that the memory is bounded, not only the number.
const MOST_LENGTH: usize = 4 << 10;

pub struct Cache {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: HashMap<Key, (Arc<Answer>, Place)>,
    /// By the end of each answer: if there is no room, the first one goes. Many names that are asked for only once drive each
    /// other out before long-lived ones.
    by_end: BTreeMap<Place, Key>,
    /// Distinguishes answers that end at the same time.
    number: u64,
    fullest: usize,
}

type Place = (Instant, u64);

impl State {
    fn remove(&mut self, key: &Key) {
        if let Some((_, place)) = self.answers.remove(key) {
            self.by_end.remove(&place);
        }
    }
}

impl Cache {
    pub fn new(most: usize) -> Self {
        Cache { most, state: Mutex::default() }
    }

    /// Takes the lock. No goroutine holds it across a call that parks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under the lock")
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Answer>> {
        let mut state = self.state();
        let (answer, _) = state.answers.get(key)?;
        if answer.ends() > Instant::now() {
            return Some(Arc::clone(answer));
        }
        state.remove(key);
        None
    }

    pub fn put(&self, key: &Key, answer: &Arc<Answer>) {
        if answer.life.is_zero() || answer.len() > MOST_LENGTH {
            return;
        }
        let mut state = self.state();
        state.remove(key);
        while state.answers.len() >= self.most {
            let (_, first) = state.by_end.pop_first().expect("each answer has its place");
            state.answers.remove(&first);
        }
        state.number += 1;
        let place = (answer.ends(), state.number);
        state.by_end.insert(place, key.clone());
        state.answers.insert(key.clone(), (Arc::clone(answer), place));
        state.fullest = state.fullest.max(state.answers.len());
    }

    /// Returns how many answers there were at most.
    pub fn fullest(&self) -> usize {
        self.state().fullest
    }
}
