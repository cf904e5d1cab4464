//! Formats in storage, as views over bytes and plain structs.
//!
//! Numbers are big-endian, as on the mainframe; bit 0 is the leftmost. Every struct has `parse` and `emit`. What an
//! address means is decided by those who have the storage.
//!
//! The layouts follow the z/Architecture Principles of Operation (chapters 13 to 17), and for what stands only there
//! `arch/s390/include/asm/{cio,orb,scsw,fcx}.h` of Linux.

pub mod ccw;
pub mod idaw;
pub mod irb;
pub mod orb;
pub mod scsw;
pub mod sense;
pub mod tccb;
pub mod tcw;
pub mod tsb;

/// The 16-bit number at `at`.
///
/// # Panics
/// If there are fewer bytes.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// The 32-bit number at `at`.
///
/// # Panics
/// If there are fewer bytes.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The 64-bit number at `at`.
///
/// # Panics
/// If there are fewer bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
