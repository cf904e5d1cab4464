//! What a party says to the others, and what it hears: parcels, numbered for each pair of lives.
//!
//! ```text
//! offset  0  mark, 4 bytes
//!         4  from u8, to u8 (255: all members), bytes u16
//!         8  life u32 of the sender, acknowledged life u32 of the receiver
//!        16  sequence u64, from 1
//!        24  acknowledged u64: the last parcel received of that life
//!        32  content, made of the sender, its life, the receiver and the sequence
//! ```

use std::collections::{BTreeMap, BTreeSet};

use proof::dice::mix;
use serde::{Deserialize, Serialize};

const MARK: [u8; 4] = *b"parc";
const HEAD_BYTES: usize = 32;

/// Bytes of the longest parcel: it fits a packet of every network.
pub const PARCEL_BYTES_MAX: usize = 1400;

/// The receiver of a parcel for all members.
const ALL: u8 = 255;

/// Parcels on their way to one party.
const WINDOW: u64 = 16;

/// After so long without an acknowledgement one more parcel goes all the same: those before may be lost.
const NUDGE_NS: u64 = 20_000_000;

/// Parcels that a kernel may send after later ones: those that waited for the receiver's MAC address go once it is known,
/// and a program that sends just then overtakes them.
const OVERTAKEN_MAX: u64 = 128;

/// What one party has said to the others and heard of them.
#[derive(Debug)]
pub struct Talk {
    own: u8,
    life: u32,
    /// The first of the parties that have a kernel between them and the LAN.
    first_behind_kernel: usize,
    peers: Vec<Peer>,
    /// Parcels for all that went.
    to_all: u64,
    /// Of those for all, by party and life: the last.
    heard_of_all: BTreeMap<(u8, u32), u64>,
}

#[derive(Debug, Default)]
struct Peer {
    /// Parcels that went.
    sent: u64,
    acknowledged: u64,
    nudged_ns: u64,
    /// What was heard, by its lives.
    heard: BTreeMap<u32, Heard>,
    /// Of the last life, what may come still, for later ones have come.
    overtaken: BTreeSet<u64>,
}

/// What was heard of one life of a party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Parcels.
    pub received: u64,
    /// The number of the first that came.
    pub first: u64,
    /// The highest number.
    pub last: u64,
}

impl Talk {
    /// A talk of party `own` in its life `life`, with as many others as make `parties`. Those from `first_behind_kernel`
    /// on have a kernel that sends for them.
    pub fn new(own: usize, life: u32, parties: usize, first_behind_kernel: usize) -> Talk {
        let peers = (0..parties).map(|_| Peer::default()).collect();
        let heard_of_all = BTreeMap::new();
        Talk { own: own as u8, life, first_behind_kernel, peers, to_all: 0, heard_of_all }
    }

    /// The next parcel for a party, if one may go now. It counts once [`Talk::went`] is called.
    pub fn next(&mut self, to: usize, now_ns: u64) -> Option<Vec<u8>> {
        let peer = &mut self.peers[to];
        if peer.sent - peer.acknowledged >= WINDOW {
            if now_ns < peer.nudged_ns + NUDGE_NS {
                return None;
            }
            peer.nudged_ns = now_ns;
        }
        let newest = peer.heard.last_key_value();
        let acknowledged = newest.map_or((0, 0), |(life, heard)| (*life, heard.last));
        Some(parcel(self.own, self.life, to as u8, peer.sent + 1, acknowledged))
    }

    /// The parcel for a party has gone.
    pub fn went(&mut self, to: usize) {
        self.peers[to].sent += 1;
    }

    /// The next parcel for all members. It has gone.
    pub fn next_for_all(&mut self) -> Vec<u8> {
        self.to_all += 1;
        parcel(self.own, self.life, ALL, self.to_all, (0, 0))
    }

    /// Takes in what has come, if it is a parcel.
    ///
    /// # Errors
    /// What is wrong: not what was sent, not for this party, or not in order.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>().filter(|head| head[..4] == MARK) else {
            return Ok(());
        };
        let [from, to] = [head[4], head[5]];
        let life = number(&head[8..12]) as u32;
        let acknowledged = (number(&head[12..16]) as u32, number(&head[24..32]));
        let sequence = number(&head[16..24]);
        let what = format!("parcel {sequence} of party {from} in life {life}");
        if bytes != parcel(from, life, to, sequence, acknowledged) {
            return Err(format!("{what} is not what was sent"));
        }
        if from == self.own
            || usize::from(from) >= self.peers.len()
            || ![self.own, ALL].contains(&to)
        {
            return Err(format!("{what} is for party {to}, and came to {}", self.own));
        }
        let has_kernel = usize::from(from) >= self.first_behind_kernel;
        let peer = &mut self.peers[usize::from(from)];
        let last = match to {
            ALL => self.heard_of_all.entry((from, life)).or_default(),
            _ => {
                if acknowledged.0 == self.life {
                    peer.acknowledged = peer.acknowledged.max(acknowledged.1.min(peer.sent));
                }
                if peer.heard.last_key_value().is_none_or(|(newest, _)| *newest < life) {
                    peer.overtaken.clear();
                }
                let heard = peer.heard.entry(life).or_default();
                heard.received += 1;
                if heard.first == 0 {
                    heard.first = sequence;
                }
                if has_kernel {
                    if sequence < heard.last && peer.overtaken.remove(&sequence) {
                        return Ok(());
                    }
                    let from = sequence.saturating_sub(OVERTAKEN_MAX).max(heard.last + 1);
                    peer.overtaken.extend(from..sequence);
                    while peer.overtaken.len() > OVERTAKEN_MAX as usize {
                        peer.overtaken.pop_first();
                    }
                }
                &mut heard.last
            }
        };
        if sequence <= *last {
            return Err(format!("{what} came after parcel {last}"));
        }
        *last = sequence;
        Ok(())
    }

    /// For each party, the parcels that went.
    pub fn sent(&self) -> Vec<u64> {
        self.peers.iter().map(|peer| peer.sent).collect()
    }

    /// For each party, what was heard of its last life.
    pub fn heard(&self) -> Vec<Option<(u32, Heard)>> {
        let newest = |peer: &Peer| peer.heard.last_key_value().map(|(life, heard)| (*life, *heard));
        self.peers.iter().map(newest).collect()
    }
}

fn parcel(from: u8, life: u32, to: u8, sequence: u64, acknowledged: (u32, u64)) -> Vec<u8> {
    let seed = mix(mix(u64::from(from) << 40 | u64::from(to) << 32 | u64::from(life)) ^ sequence);
    let bytes = HEAD_BYTES + seed as usize % (PARCEL_BYTES_MAX - HEAD_BYTES);
    let mut parcel = Vec::with_capacity(bytes + 8);
    parcel.extend(MARK);
    parcel.extend([from, to]);
    parcel.extend((bytes as u16).to_le_bytes());
    parcel.extend(life.to_le_bytes());
    parcel.extend(acknowledged.0.to_le_bytes());
    parcel.extend(sequence.to_le_bytes());
    parcel.extend(acknowledged.1.to_le_bytes());
    let mut word = seed;
    while parcel.len() < bytes {
        word = mix(word);
        parcel.extend(word.to_le_bytes());
    }
    parcel.truncate(bytes);
    parcel
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_are_heard_once_and_in_order() {
        let (mut one, mut other) = (Talk::new(0, 7, 2, 2), Talk::new(1, 3, 2, 2));
        let mut parcels = Vec::new();
        for _ in 0..WINDOW {
            parcels.push(one.next(1, 0).unwrap());
            one.went(1);
        }
        // A lost one is no fault; a nudge goes once in a while.
        parcels.remove(1);
        assert_eq!(one.next(1, NUDGE_NS - 1), None);
        assert!(one.next(1, NUDGE_NS).is_some() && one.next(1, NUDGE_NS).is_none());
        parcels.iter().for_each(|parcel| other.hear(parcel).unwrap());
        let heard = Heard { received: WINDOW - 1, first: 1, last: WINDOW };
        assert_eq!(other.heard(), [Some((7, heard)), None]);
        assert!(other.hear(&parcels[3]).is_err(), "twice");
        let answer = other.next(0, 0).unwrap();
        one.hear(&answer).unwrap();
        assert!(one.next(1, 0).is_some(), "all was acknowledged");
        // Another life begins anew.
        let mut again = Talk::new(0, 8, 2, 2);
        other.hear(&again.next(1, 0).unwrap()).unwrap();
    }

    #[test]
    fn kernel_may_let_parcels_be_overtaken_and_sends_none_twice() {
        let (mut one, mut other) = (Talk::new(1, 7, 2, 1), Talk::new(0, 3, 2, 1));
        let mut parcels = Vec::new();
        for _ in 0..WINDOW {
            parcels.push(one.next(0, 0).unwrap());
            one.went(0);
        }
        for at in [4, 0, 1, 3, 2, 5, 7, 6] {
            other.hear(&parcels[at]).unwrap();
        }
        let heard = Heard { received: 8, first: 5, last: 8 };
        assert_eq!(other.heard(), [None, Some((7, heard))]);
        for at in [4, 0, 6, 7] {
            assert!(other.hear(&parcels[at]).is_err(), "{at} came twice");
        }
    }

    #[test]
    fn wrong_parcels_are_found() {
        let (mut one, mut other) = (Talk::new(0, 7, 3, 3), Talk::new(1, 3, 3, 3));
        let parcel = one.next(1, 0).unwrap();
        for at in [4, 6, 8, 16, HEAD_BYTES, parcel.len() - 1] {
            let mut wrong = parcel.clone();
            wrong[at] ^= 2;
            assert!(other.hear(&wrong).is_err(), "{at}");
        }
        assert!(other.hear(&parcel[..parcel.len() - 1]).is_err());
        assert!(other.hear(&one.next(2, 0).unwrap()).is_err(), "for somebody else");
        assert!(other.hear(&one.next_for_all()).is_ok());
        assert!(other.hear(b"something else").is_ok());
    }
}
