//! What a bridge counts of packets, and what it tells the user.

use siga::lan::{Counter, Lan, LanName};

use super::dropped::Dropped;

/// What a bridge has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets from the LAN that have gone to the port.
    pub packets_out: u64,
    /// Bytes of these, from the Ethernet header on.
    pub bytes_out: u64,
    /// Packets from the port that have gone to members of the LAN.
    pub packets_in: u64,
    /// Bytes of these.
    pub bytes_in: u64,
    /// Senders that were told that a packet is longer than the other side takes (ICMP).
    pub told_too_long: u64,
    /// Packets that do not pass.
    dropped: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Packets that have not passed for this reason.
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped[why as usize]
    }
}

/// The one place where packets are counted: for the program, for the LAN, and for the user, who hears once of each reason.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) counters: Counters,
    lan: LanName,
    /// Reasons of which the user was told.
    told: [bool; Dropped::ALL.len()],
    /// Dropped packets that the LAN's counter does not have yet.
    uncounted: u64,
    notices: Vec<String>,
}

impl Account {
    pub(super) fn new(lan: LanName) -> Account {
        Account {
            counters: Counters::default(),
            lan,
            told: [false; Dropped::ALL.len()],
            uncounted: 0,
            notices: Vec::new(),
        }
    }

    /// A packet of so many bytes, from its Ethernet header on, has gone to the port.
    #[inline]
    pub(super) fn went_out(&mut self, bytes: usize) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += bytes as u64;
    }

    /// The same of one that has gone to a member.
    #[inline]
    pub(super) fn came_in(&mut self, bytes: usize) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += bytes as u64;
    }

    /// A packet was too long. `is_told`: its sender was told so.
    pub(super) fn told_too_long(&mut self, is_told: bool) {
        self.counters.told_too_long += u64::from(is_told);
    }

    /// A packet is dropped.
    pub(super) fn drop_one(&mut self, why: Dropped) {
        self.drop_some(why, 1);
    }

    /// So many packets are dropped for one reason.
    pub(super) fn drop_some(&mut self, why: Dropped, number: u64) {
        if number == 0 {
            return;
        }
        self.counters.dropped[why as usize] += number;
        self.uncounted += number;
        if !std::mem::replace(&mut self.told[why as usize], true)
            && let Some(notice) = why.notice()
        {
            self.tell(format!(
                "the bridge of {}: {notice}; such packets are counted as dropped_device (siga query lan)",
                self.lan
            ));
        }
    }

    /// Hands what was dropped on to the LAN's counter, which others see.
    pub(super) fn show(&mut self, lan: &mut Lan) {
        let number = std::mem::take(&mut self.uncounted);
        if number > 0 {
            lan.count(Counter::DroppedDevice, number);
        }
    }

    /// The user is to be told of this.
    pub(super) fn tell(&mut self, notice: String) {
        self.notices.push(notice);
    }

    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    pub(super) fn take_notice(&mut self) -> Option<String> {
        (!self.notices.is_empty()).then(|| self.notices.remove(0))
    }
}
