//! Packets that wait, by the member of the LAN that they are from or for.

use net::lan::frame::Mac;
use net::lan::offload::Offload;
use net::lan::waiting::WaitingFrames;

use crate::backlog::Tried;

/// Packets of one member that wait, at most.
pub(super) const PACKETS_MAX: usize = 256;

/// Bytes of these, at most: eight of the longest packets, or a window of TCP in short ones. A member has no other's share.
pub(super) const BYTES_MAX: usize = 512 << 10;

/// Packets that wait, in order for each member.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: Vec<(Mac, WaitingFrames<Offload, PACKETS_MAX>)>,
}

impl Queues {
    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns true if packets of this member wait: the next one waits behind them.
    pub(super) fn has(&self, member: Mac) -> bool {
        self.of.iter().any(|(mac, _)| *mac == member)
    }

    /// Keeps a copy of a packet of this member. Returns false if the member has its share.
    pub(super) fn keep(&mut self, member: Mac, offload: Offload, frame: &[u8]) -> bool {
        let at = self.of.iter().position(|(mac, _)| *mac == member);
        let waiting_bytes = at.map_or(0, |at| self.of[at].1.bytes());
        if waiting_bytes + frame.len() > BYTES_MAX {
            return false;
        }
        let at = at.unwrap_or_else(|| {
            self.of.push((member, WaitingFrames::default()));
            self.of.len() - 1
        });
        self.of[at].1.push_copy(offload, frame)
    }

    /// Tries the packets that wait, those of each member in order until one does not go. Returns true if any was done with. Another
    /// member is the first the next time then: whoever has waited in vain has not had its turn.
    pub(super) fn retry(&mut self, mut attempt: impl FnMut(Offload, &[u8]) -> Tried) -> bool {
        let mut is_any_done = false;
        self.of.retain_mut(|(_, packets)| {
            while let Some((offload, frame)) = packets.first() {
                if let Tried::Full = attempt(*offload, frame) {
                    return true;
                }
                is_any_done = true;
                packets.pop();
            }
            false
        });
        if is_any_done && self.of.len() > 1 {
            self.of.rotate_left(1);
        }
        is_any_done
    }

    /// Drops the packets of members that are not on the LAN any more. Returns how many these were.
    pub(super) fn retain(&mut self, is_member: impl Fn(Mac) -> bool) -> u64 {
        let mut dropped = 0;
        self.of.retain(|(mac, packets)| {
            let stays = is_member(*mac);
            dropped += if stays { 0 } else { packets.len() as u64 };
            stays
        });
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn member_that_stands_still_takes_nothing_from_another() {
        let mut queues = Queues::default();
        let long = vec![1; 60_000];
        let kept = (0..100).filter(|_| queues.keep(ONE, Offload::NONE, &long)).count();
        assert_eq!(kept, BYTES_MAX / long.len());
        for _ in 0..PACKETS_MAX {
            assert!(queues.keep(OTHER, Offload::NONE, &[2; 60]));
        }
        assert!(!queues.keep(OTHER, Offload::NONE, &[2; 60]));
        // The first takes nothing: the other's packets go.
        let mut gone = 0;
        let is_any_done = queues.retry(|_, frame| match frame[0] {
            1 => Tried::Full,
            _ => {
                gone += 1;
                Tried::Done
            }
        });
        assert!(is_any_done && gone == PACKETS_MAX);
        assert!(queues.has(ONE) && !queues.has(OTHER));
        assert_eq!(queues.retain(|mac| mac != ONE), kept as u64);
        assert!(queues.is_empty());
    }

    #[test]
    fn members_take_turns() {
        let mut queues = Queues::default();
        for (member, byte) in [(ONE, 1), (OTHER, 2)] {
            assert!((0..4).all(|_| queues.keep(member, Offload::NONE, &[byte])));
        }
        // There is room for so many packets each time.
        let mut went = Vec::new();
        for rooms in [0, 1, 0, 0, 1, 1, 0, 1] {
            let mut left = rooms;
            queues.retry(|_, frame| {
                if left == 0 {
                    return Tried::Full;
                }
                left -= 1;
                went.push(frame[0]);
                Tried::Done
            });
        }
        assert_eq!(went, [1, 2, 1, 2]);
    }
}
