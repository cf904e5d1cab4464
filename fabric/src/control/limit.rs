//! Limits with owners: how a refusal says which limit was reached, whose it is, and what changes it.

use std::fmt;

use super::packet::Field;
use crate::listed;
use crate::name::{LanName, NAME_BYTES, Name};

listed! {
    /// A limit of a host. The design page `limits.md` has the table of all of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    #[non_exhaustive]
    pub enum Limit {
        /// Connections that have neither attached nor begun to observe.
        Strangers = 1 => "connections that have not attached",
        /// Connections that observe.
        Observers = 2 => "observers",
        /// Guests at once.
        Guests = 3 => "guests",
        /// Descriptors that the host holds.
        Descriptors = 4 => "descriptors",
        /// Mappings that the host holds.
        Mappings = 5 => "mappings",
        /// Bytes of memory that the host may have to hold.
        Memory = 6 => "memory",
        /// Connections that wait for one guest.
        Pending = 7 => "pending connections",
        /// Requests in a second.
        Requests = 8 => "requests a second",
        /// Changes of the address tables of LANs in a second.
        TableWrites = 9 => "table writes a second",
        /// Passed descriptors that were refused and are not closed yet.
        Refused = 10 => "descriptors to be closed",
        /// Paths of a guest.
        Paths = 11 => "paths",
        /// Bytes of storage that the paths of a guest may lend.
        Storage = 12 => "storage",
        /// Resources that a guest manages.
        Resources = 13 => "resources",
        /// Guests that show volumes.
        Volumes = 14 => "guests that show volumes",
        /// Members of a LAN.
        Members = 15 => "members",
        /// IP addresses of a member of a LAN.
        Addresses = 16 => "addresses",
        /// Packets that were sent to a connection and that the kernel had no memory for.
        Unsent = 17 => "unsent packets",
    }
}

/// The party whose limit was reached. Others have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// The host: all its users together.
    Host,
    /// A user, by number.
    User(u32),
    /// All users that have no number in the host's user namespace.
    Unmapped,
    /// All users that the system file lets be no guest.
    Others,
    /// All guests of one rule of the system file.
    Rule(RuleName),
    /// A guest.
    Guest(Name),
    /// A LAN.
    Lan(LanName),
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Host => formatter.write_str("the host"),
            Owner::User(number) => write!(formatter, "user {number}"),
            Owner::Unmapped => formatter.write_str("users without a number here"),
            Owner::Others => formatter.write_str("users without a rule"),
            Owner::Rule(name) => write!(formatter, "rule {name}"),
            Owner::Guest(name) => write!(formatter, "guest {name}"),
            Owner::Lan(name) => write!(formatter, "LAN {name}"),
        }
    }
}

/// The name of a rule of the system file: a guest's, or the beginning of names and `*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleName {
    /// Filled up with blanks.
    bytes: [u8; NAME_BYTES],
}

impl RuleName {
    /// The rule for the guest of this name.
    pub fn of(name: Name) -> RuleName {
        RuleName { bytes: name.bytes() }
    }

    /// The rule for the guests whose names begin like this; none if no name does.
    pub fn beginning(text: &str) -> Option<RuleName> {
        let mut bytes = [b' '; NAME_BYTES];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        *bytes.get_mut(text.len())? = b'*';
        RuleName::parse(bytes)
    }

    fn parse(bytes: [u8; NAME_BYTES]) -> Option<RuleName> {
        let end = bytes.iter().position(|byte| *byte == b' ').unwrap_or(NAME_BYTES);
        let mut name = bytes;
        if end > 0 && name[end - 1] == b'*' {
            name[end - 1] = b' ';
        }
        let is_name = Name::parse(name).is_some() || bytes == *b"*       ";
        is_name.then_some(RuleName { bytes })
    }

    /// The name without blanks.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("a name is ASCII").trim_ascii_end()
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for RuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The limit.
    pub limit: Limit,
    /// Its owner.
    pub owner: Owner,
    /// How much the owner may have.
    pub most: u64,
}

impl Reached {
    /// The setting that changes the limit; none if it is fixed.
    pub fn setting(&self) -> Option<&'static str> {
        setting(self.limit, self.owner)
    }
}

/// The setting that changes a limit of an owner; none if it is fixed.
pub fn setting(limit: Limit, owner: Owner) -> Option<&'static str> {
    Some(match (limit, owner) {
        (Limit::Guests, Owner::Host) => "guests_max of [host] in the system file",
        (Limit::Guests, Owner::Rule(_)) => "guests_max in the system file",
        (Limit::Descriptors, Owner::Host) => "ulimit -n of the host",
        (Limit::Mappings, Owner::Host) => "the kernel's vm.max_map_count",
        (Limit::Memory, Owner::Host) => "memory_max of [host] in the system file",
        (Limit::Guests, _) => "guests_max of [[user]] in the system file",
        (Limit::Descriptors, _) => "descriptors_max of [[user]] in the system file",
        (Limit::Mappings, _) => "mappings_max of [[user]] in the system file",
        (Limit::Memory, _) => "memory_max of [[user]] in the system file",
        (Limit::Pending, Owner::User(_) | Owner::Unmapped) => {
            "pending_max of [[user]] in the system file"
        }
        (Limit::Requests, _) => "requests_per_s of [[user]] in the system file",
        (Limit::TableWrites, _) => "table_writes_per_s of [[user]] in the system file",
        (Limit::Paths, _) => "paths_max in the system file",
        (Limit::Storage, _) => "storage_max in the system file",
        _ => return None,
    })
}

impl fmt::Display for Reached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { limit, owner, most } = self;
        let setting = self.setting().unwrap_or("fixed");
        write!(formatter, "limit {} of {owner} reached: {most} ({setting})", limit.name())
    }
}

impl Field for Limit {
    fn put(&self, packet: &mut Vec<u8>) {
        (*self as u8).put(packet);
    }

    fn take(left: &mut &[u8]) -> Option<Limit> {
        let number = u8::take(left)?;
        Limit::ALL.into_iter().find(|limit| *limit as u8 == number)
    }
}

/// A byte for the kind of owner, and eight for which.
impl Field for Owner {
    fn put(&self, packet: &mut Vec<u8>) {
        let (kind, which) = match *self {
            Owner::Host => (0_u8, [0; NAME_BYTES]),
            Owner::User(number) => (1, u64::from(number).to_le_bytes()),
            Owner::Unmapped => (2, [0; NAME_BYTES]),
            Owner::Others => (3, [0; NAME_BYTES]),
            Owner::Rule(RuleName { bytes }) => (4, bytes),
            Owner::Guest(name) => (5, name.bytes()),
            Owner::Lan(name) => (6, name.bytes()),
        };
        (kind, which).put(packet);
    }

    fn take(left: &mut &[u8]) -> Option<Owner> {
        let (kind, which) = <(u8, [u8; NAME_BYTES])>::take(left)?;
        let is_blank = which == [0; NAME_BYTES];
        match kind {
            0 => is_blank.then_some(Owner::Host),
            1 => u32::try_from(u64::from_le_bytes(which)).ok().map(Owner::User),
            2 => is_blank.then_some(Owner::Unmapped),
            3 => is_blank.then_some(Owner::Others),
            4 => RuleName::parse(which).map(Owner::Rule),
            5 => Name::parse(which).map(Owner::Guest),
            6 => LanName::parse(which).map(Owner::Lan),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_that_is_reached_names_itself_its_owner_and_the_setting() {
        let rule = Owner::Rule(RuleName::beginning("WEB").unwrap());
        for (limit, owner, most, text) in [
            (
                Limit::Guests,
                rule,
                16,
                "limit guests of rule WEB* reached: 16 (guests_max in the system file)",
            ),
            (
                Limit::Descriptors,
                Owner::User(1001),
                512,
                "limit descriptors of user 1001 reached: 512 (descriptors_max of [[user]] in the system file)",
            ),
            (
                Limit::Mappings,
                Owner::Host,
                9,
                "limit mappings of the host reached: 9 (the kernel's vm.max_map_count)",
            ),
            (Limit::Observers, Owner::Host, 64, "limit observers of the host reached: 64 (fixed)"),
        ] {
            assert_eq!(Reached { limit, owner, most }.to_string(), text);
        }
    }

    #[test]
    fn rules_are_names_and_beginnings_of_names() {
        let name = |text: &str| RuleName::of(text.parse().unwrap()).to_string();
        assert_eq!(name("DATABASE"), "DATABASE");
        for (text, rule) in [("WEB", Some("WEB*")), ("SEVEN-7", Some("SEVEN-7*")), ("", Some("*"))]
        {
            assert_eq!(RuleName::beginning(text).as_ref().map(RuleName::as_str), rule);
        }
        for text in ["DATABASE", "NINE-9999", "web", "W*"] {
            assert_eq!(RuleName::beginning(text), None, "{text}");
        }
        for bytes in [*b"        ", *b"A*B     ", *b"**      ", [0; 8]] {
            assert_eq!(RuleName::parse(bytes), None);
        }
    }
}
