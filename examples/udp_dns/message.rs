//! As much of a DNS message (RFC 1035; EDNS, RFC 6891) as a forwarder needs: whose question it is, and how long an answer is
//! valid. Every length in a message is checked before it is used.
//!
//! ```text
//!   header, 12 bytes: id · flags · how many questions, answers, authorities, additional records
//!   question:         name · type · class
//!   record:           name · type · class · TTL · length · data
//! ```
//! A name is labels with their lengths, up to an empty label, or up to a pointer to the place in the message where the name
//! goes on.

use std::ops::Range;
use std::time::{Duration, Instant};

pub const NO_ERROR: u8 = 0;
pub const FORMAT_ERROR: u8 = 1;
pub const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
pub const NOT_IMPLEMENTED: u8 = 4;

const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const PTR: u16 = 12;
const MX: u16 = 15;
const DNAME: u16 = 39;
const OPT: u16 = 41;
/// Types that stand for a transfer, a signature of the message, and more that no cache answers.
const META: Range<u16> = 249..255;
const ANY: u16 = 255;

const HEADER: usize = 12;
const MOST_LABELS: usize = 128;
/// Bits of the header's third byte, and of the fourth.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const CHECKING_DISABLED: u8 = 0x10;
const RCODE: u8 = 0x0f;
/// The bit of EDNS by which signatures are asked for.
const DNSSEC_OK: u32 = 0x8000;

/// A datagram of this length needs no fragments on any path that matters.
pub const MOST_UDP: usize = 1232;
/// The length that a client takes if it says nothing of it.
const LEAST_UDP: usize = 512;
/// How long an answer is kept at most; and the answer that a name does not exist (RFC 2308, section 5).
const MOST_TTL: u32 = 86_400;
const MOST_NEGATIVE_TTL: u32 = 10_800;
/// How long an upstream's failure is repeated instead of asking again (RFC 9520).
const FAILURE_TTL: Duration = Duration::from_secs(1);

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

/// Returns where the name at `at` ends; `None` if it is no valid name. Each pointer has to lead further back than all before
/// it, so there can be no ring; and there may be no more pointers than a name can have labels, so a long chain costs little,
/// however often it is used.
fn name_end(message: &[u8], at: usize) -> Option<usize> {
    let (mut next, mut lowest, mut length, mut end) = (at, at, 0, None);
    for _ in 0..2 * MOST_LABELS {
        match *message.get(next)? {
            0 => return Some(end.unwrap_or(next + 1)),
            label @ 1..0x40 => {
                next += 1 + usize::from(label);
                length += 1 + usize::from(label);
                (length < 255).then_some(())?;
            }
            0xc0.. => {
                end.get_or_insert(next + 2);
                next = usize::from(u16_at(message, next)? & 0x3fff);
                (HEADER..lowest).contains(&next).then_some(())?;
                lowest = next;
            }
            _ => return None,
        }
    }
    None
}

struct Record {
    at: usize,
    kind: u16,
    ttl_at: usize,
    data: Range<usize>,
}

impl Record {
    fn at(message: &[u8], at: usize) -> Option<Self> {
        let fields = name_end(message, at)?;
        let kind = u16_at(message, fields)?;
        let data = fields + 10..fields + 10 + usize::from(u16_at(message, fields + 8)?);
        message.get(data.clone())?;
        // Names inside data may be compressed for these types only (RFC 3597, section 4).
        let names = match kind {
            NS | CNAME | PTR | DNAME => Some(name_end(message, data.start)?),
            MX => Some(name_end(message, data.start + 2)?),
            SOA => Some(name_end(message, name_end(message, data.start)?)? + 20),
            _ => None,
        };
        names.is_none_or(|end| end == data.end).then_some(Record { at, kind, ttl_at: fields + 4, data })
    }
}

/// The question, and all else on which the answer depends: the key of the cache.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Name, type and class, as in a message, the name in small letters.
    question: Vec<u8>,
    recursion: bool,
    unchecked: bool,
    dnssec: bool,
}

impl Key {
    /// Returns the query for an upstream.
    pub fn query(&self, id: u16, edns: bool) -> Vec<u8> {
        let mut query = id.to_be_bytes().to_vec();
        query.push(if self.recursion { RECURSION_DESIRED } else { 0 });
        query.push(if self.unchecked { CHECKING_DISABLED } else { 0 });
        query.extend([0, 1, 0, 0, 0, 0, 0, edns.into()]);
        query.extend(&self.question);
        if edns {
            push_opt(&mut query, 0, self.dnssec);
        }
        query
    }

    fn kind(&self) -> u16 {
        u16_at(&self.question, self.question.len() - 4).expect("a question ends in a type and a class")
    }
}

/// Appends our own record of EDNS. Options of a client are for the next hop alone, and are not passed on.
fn push_opt(message: &mut Vec<u8>, more_rcode: u8, dnssec: bool) {
    message.push(0);
    message.extend(OPT.to_be_bytes());
    message.extend((MOST_UDP as u16).to_be_bytes());
    message.extend((u32::from(more_rcode) << 24 | if dnssec { DNSSEC_OK } else { 0 }).to_be_bytes());
    message.extend([0, 0]);
}

/// A client's query.
pub struct Query {
    id: u16,
    pub key: Key,
    /// The question, with the client's upper and lower case.
    spelt: Vec<u8>,
    edns: bool,
    /// The longest datagram that the client takes.
    pub most: usize,
}

/// Why a message is not a query that can be answered.
pub enum NoQuery {
    /// Too short for a header, or an answer: answering answers could go on for ever.
    Ignored,
    /// Refused, with the answer that says so.
    Refused(Vec<u8>),
}

/// An answer without records.
fn refusal(message: &[u8], rcode: u8) -> NoQuery {
    let flags = RESPONSE | message[2] & (OPCODE | RECURSION_DESIRED);
    NoQuery::Refused([&message[..2], &[flags, RECURSION_AVAILABLE | rcode, 0, 0, 0, 0, 0, 0, 0, 0]].concat())
}

impl Query {
    pub fn parse(message: &[u8]) -> Result<Self, NoQuery> {
        if message.len() < HEADER || message[2] & RESPONSE != 0 {
            return Err(NoQuery::Ignored);
        }
        if message[2] & OPCODE != 0 {
            return Err(refusal(message, NOT_IMPLEMENTED));
        }
        let (query, version) = Self::fields(message).ok_or_else(|| refusal(message, FORMAT_ERROR))?;
        if META.contains(&query.key.kind()) {
            return Err(refusal(message, NOT_IMPLEMENTED));
        }
        if version > 0 {
            // BADVERS is 16: a one in the upper part, which is in the record of EDNS.
            let answer = Answer::failure(&query.key, NO_ERROR);
            let mut told = answer.to(&query, MOST_UDP);
            let opt = told.len() - 11;
            told.truncate(opt);
            push_opt(&mut told, 1, query.key.dnssec);
            return Err(NoQuery::Refused(told));
        }
        Ok(query)
    }

    /// Returns the query, with the version of EDNS.
    fn fields(message: &[u8]) -> Option<(Self, u8)> {
        let counts = [4, 6, 8, 10].map(|at| u16_at(message, at));
        let [Some(1), Some(answers), Some(authorities), Some(additional)] = counts else { return None };
        // The first name has nothing before it to point to.
        let name = name_end(message, HEADER)?;
        let spelt = message.get(HEADER..name + 4)?.to_vec();
        let (mut at, mut opt) = (name + 4, None);
        for _ in 0..u32::from(answers) + u32::from(authorities) + u32::from(additional) {
            let record = Record::at(message, at)?;
            if record.kind == OPT {
                // At most one such record, for the root.
                (opt.is_none() && message[record.at] == 0).then_some(())?;
                opt = Some((u16_at(message, record.ttl_at - 2)?, u32_at(message, record.ttl_at)?));
            }
            at = record.data.end;
        }
        (at == message.len()).then_some(())?;
        let mut question = spelt.clone();
        let letters = question.len() - 4;
        // Lengths of labels are below every letter.
        question[..letters].make_ascii_lowercase();
        let key = Key {
            question,
            recursion: message[2] & RECURSION_DESIRED != 0,
            unchecked: message[3] & CHECKING_DISABLED != 0,
            dnssec: opt.is_some_and(|(_, fields)| fields & DNSSEC_OK != 0),
        };
        let most = opt.map_or(LEAST_UDP, |(size, _)| usize::from(size).clamp(LEAST_UDP, MOST_UDP));
        let query = Query { id: u16_at(message, 0)?, key, spelt, edns: opt.is_some(), most };
        Some((query, opt.map_or(0, |(_, fields)| (fields >> 16) as u8)))
    }
}

/// An upstream's answer, without its record of EDNS: for every client that asks the same.
pub struct Answer {
    message: Vec<u8>,
    ttls: Vec<usize>,
    born: Instant,
    /// How long the answer is valid. Zero: only for the clients that have asked already.
    pub life: Duration,
}

/// The meaning of a message from the upstream.
pub enum Heard {
    /// Not the answer to this query, or not to be understood.
    Strange,
    /// The answer did not fit into a datagram.
    Truncated,
    /// The upstream does not know EDNS.
    WithoutEdns,
    Answer(Answer),
}

impl Heard {
    /// Checks whether `message` answers `key`, which was asked with `id`.
    pub fn of(message: &[u8], key: &Key, id: u16, edns: bool) -> Self {
        if message.len() < HEADER
            || u16_at(message, 0) != Some(id)
            || message[2] & (RESPONSE | OPCODE) != RESPONSE
        {
            return Heard::Strange;
        }
        let rcode = message[3] & RCODE;
        let opposes = edns && [FORMAT_ERROR, NOT_IMPLEMENTED].contains(&rcode);
        // A server that does not understand a query does not always repeat the question.
        if opposes && u16_at(message, 4) == Some(0) {
            return Heard::WithoutEdns;
        }
        let end = HEADER + key.question.len();
        let is_ours = u16_at(message, 4) == Some(1)
            && message.get(HEADER..end).is_some_and(|question| {
                let (name, kind) = question.split_at(question.len() - 4);
                let (our_name, our_kind) = key.question.split_at(question.len() - 4);
                name.eq_ignore_ascii_case(our_name) && kind == our_kind
            });
        match () {
            _ if !is_ours => Heard::Strange,
            _ if opposes => Heard::WithoutEdns,
            _ if message[2] & TRUNCATED != 0 => Heard::Truncated,
            _ => Answer::parse(message, key).map_or(Heard::Strange, Heard::Answer),
        }
    }
}

impl Answer {
    /// An answer without records, of our own.
    pub fn failure(key: &Key, rcode: u8) -> Self {
        let mut message = vec![0, 0, RESPONSE, RECURSION_AVAILABLE | rcode, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(&key.question);
        Answer { message, ttls: Vec::new(), born: Instant::now(), life: FAILURE_TTL }
    }

    fn parse(message: &[u8], key: &Key) -> Option<Self> {
        let mut message = message.to_vec();
        let [answers, authorities, additional] = [6, 8, 10].map(|at| u16_at(&message, at).map(u32::from));
        let (answers, authorities, additional) = (answers?, authorities?, additional?);
        let mut at = HEADER + key.question.len();
        let (mut ttls, mut shortest, mut is_there, mut negative) = (Vec::new(), MOST_TTL, false, None);
        for number in 0..answers + authorities + additional {
            let record = Record::at(&message, at)?;
            if record.kind == OPT {
                if number < answers + authorities {
                    return None;
                }
                // An upper part of the code, which says that the upstream has not understood this program.
                if message[record.ttl_at] != 0 {
                    return Some(Answer::failure(key, SERVER_FAILURE));
                }
                // Mostly the last record. The records after it, whose pointers might be wrong without it, can be left out.
                message[10..12].copy_from_slice(&((number - answers - authorities) as u16).to_be_bytes());
                message.truncate(record.at);
                at = record.at;
                break;
            }
            is_there |= number < answers && (record.kind == key.kind() || key.kind() == ANY);
            // The upper bit is no number of years (RFC 2181, section 8).
            let mut ttl = u32_at(&message, record.ttl_at)?;
            ttl = if ttl > i32::MAX as u32 { 0 } else { ttl.min(MOST_TTL) };
            if record.kind == SOA && (answers..answers + authorities).contains(&number) {
                // The last field: how long the answer that there is no such thing is valid (RFC 2308, section 5).
                ttl = ttl.min(u32_at(&message, record.data.end - 4)?).min(MOST_NEGATIVE_TTL);
                negative = Some(ttl);
            }
            message[record.ttl_at..record.ttl_at + 4].copy_from_slice(&ttl.to_be_bytes());
            ttls.push(record.ttl_at);
            shortest = shortest.min(ttl);
            at = record.data.end;
        }
        (at == message.len()).then_some(())?;
        let life = match message[3] & RCODE {
            NO_ERROR if is_there => Duration::from_secs(shortest.into()),
            // Without a SOA it is not known for how long.
            NO_ERROR | NO_SUCH_NAME => {
                negative.map_or(Duration::ZERO, |_| Duration::from_secs(shortest.into()))
            }
            _ => FAILURE_TTL,
        };
        Some(Answer { message, ttls, born: Instant::now(), life })
    }

    pub fn len(&self) -> usize {
        self.message.len()
    }

    pub fn ends(&self) -> Instant {
        self.born + self.life
    }

    pub fn is_failure(&self) -> bool {
        self.message[3] & RCODE == SERVER_FAILURE
    }

    /// Returns the answer to `query`, less the time for which it was kept. If it has more than `most` bytes, the answer says
    /// only that.
    pub fn to(&self, query: &Query, most: usize) -> Vec<u8> {
        let mut out = self.message.clone();
        let age = self.born.elapsed().as_secs() as u32;
        for &at in &self.ttls {
            let ttl = u32_at(&out, at).expect("the answer was parsed");
            out[at..at + 4].copy_from_slice(&ttl.saturating_sub(age).to_be_bytes());
        }
        let records = HEADER + query.spelt.len();
        let opt = if query.edns { 11 } else { 0 };
        let is_truncated = out.len() + opt > most;
        if is_truncated {
            out.truncate(records);
            out[6..12].fill(0);
        }
        out[..2].copy_from_slice(&query.id.to_be_bytes());
        // Not authoritative, and nothing here has checked a signature.
        out[2] = RESPONSE
            | if is_truncated { TRUNCATED } else { 0 }
            | if query.key.recursion { RECURSION_DESIRED } else { 0 };
        out[3] &= RECURSION_AVAILABLE | RCODE;
        out[3] |= if query.key.unchecked { CHECKING_DISABLED } else { 0 };
        out[HEADER..records].copy_from_slice(&query.spelt);
        if query.edns {
            let additional = u16_at(&out, 10).expect("a header").saturating_add(1);
            out[10..12].copy_from_slice(&additional.to_be_bytes());
            push_opt(&mut out, 0, query.key.dnssec);
        }
        out
    }
}
