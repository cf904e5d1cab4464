//! The checks.

mod audience;
mod both_ways;
mod crowd;
mod forked;
mod forked_disk;
mod limits;
mod metadata;
mod quiet;
mod returns;
mod ringing;
mod servers;
mod stop;
mod storage;
mod takeover;
mod unpulled;
mod users;

use super::check::Check;

/// All of them.
pub const CHECKS: &[Check] = &[
    servers::CHECK,
    takeover::CHECK,
    crowd::CHECK,
    storage::CHECK,
    audience::CHECK,
    returns::CHECK,
    ringing::CHECK,
    quiet::CHECK,
    metadata::CHECK,
    stop::CHECK,
    limits::CHECK,
    both_ways::CHECK,
    unpulled::CHECK,
    forked::CHECK,
    forked_disk::CHECK,
    users::CHECK,
    users::STRANGER,
];
