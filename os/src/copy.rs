//! Copies into and out of shared memory.
//!
//! The language knows no plain read of memory that another process may be writing: the compiler may assume
//! that two reads of a byte agree. So every byte is read exactly once, by a volatile load or by the
//! processor's string move. Copies into our own storage do not need this.

use std::arch::asm;

/// From this length on the string move is faster than a loop of sixteen bytes (measured: 1 to 2 KiB
/// on processors with fast string moves).
#[cfg(target_arch = "x86_64")]
const STRING_MOVE_BYTES_MIN: usize = 1024;

/// Copies `bytes` from `source`, which may change meanwhile, to `target`, which is ours.
///
/// # Safety
/// Both ranges are mapped for the whole call, `target` is writable and accessed by no other thread, and they
/// do not overlap.
#[inline]
pub(crate) unsafe fn copy_out(source: *const u8, target: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= STRING_MOVE_BYTES_MIN {
        // SAFETY: the caller vouches for both ranges. `rep movsb` reads and writes exactly `bytes`
        // bytes, the direction flag is clear by the calling convention, no flag is changed.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rsi") source => _,
                inout("rdi") target => _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: the caller vouches for both ranges.
    unsafe { copy_out_short(source, target, bytes) }
}

/// Copies out a few cache lines at most, without the start-up cost of a string move.
///
/// # Safety
/// Both ranges are mapped for the whole call, `target` is writable and accessed by no other thread, and they
/// do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_out_short(source: *const u8, target: *mut u8, bytes: usize) {
    let mut at = 0;
    while at + 16 <= bytes {
        // SAFETY: `at + 16 <= bytes`, within both ranges.
        unsafe { move_16(source.wrapping_add(at), target.wrapping_add(at)) };
        at += 16;
    }
    if at + 8 <= bytes {
        // SAFETY: `at + 8 <= bytes`, within both ranges.
        unsafe { move_8(source.wrapping_add(at), target.wrapping_add(at)) };
        at += 8;
    }
    while at < bytes {
        // SAFETY: `at < bytes`, within both ranges.
        unsafe { move_1(source.wrapping_add(at), target.wrapping_add(at)) };
        at += 1;
    }
}

/// Moves sixteen bytes, at any alignment, in one load and one store.
///
/// # Safety
/// Both are mapped, `target` is writable and ours. The source may change meanwhile.
#[inline(always)]
unsafe fn move_16(source: *const u8, target: *mut u8) {
    // SAFETY: the caller vouches for both; nothing else is touched.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "movdqu {through}, [{source}]",
            "movdqu [{target}], {through}",
            source = in(reg) source,
            target = in(reg) target,
            through = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "ldr {through:q}, [{source}]",
            "str {through:q}, [{target}]",
            source = in(reg) source,
            target = in(reg) target,
            through = out(vreg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Moves eight bytes, at any alignment, in one load and one store.
///
/// # Safety
/// Both are mapped, `target` is writable and ours. The source may change meanwhile.
#[inline(always)]
unsafe fn move_8(source: *const u8, target: *mut u8) {
    // SAFETY: the caller vouches for both; nothing else is touched.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {through}, [{source}]",
            "mov [{target}], {through}",
            source = in(reg) source,
            target = in(reg) target,
            through = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "ldr {through}, [{source}]",
            "str {through}, [{target}]",
            source = in(reg) source,
            target = in(reg) target,
            through = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Moves one byte.
///
/// # Safety
/// Both are mapped, `target` is writable and ours. The source may change meanwhile.
#[inline(always)]
unsafe fn move_1(source: *const u8, target: *mut u8) {
    // SAFETY: mapped, a byte is always aligned; volatile, because another process may write it.
    let byte = unsafe { source.read_volatile() };
    // SAFETY: mapped, writable, ours.
    unsafe { target.write(byte) };
}

/// Up to this length [`put`] moves eight bytes at a time.
const PUT_SHORT_BYTES_MAX: usize = 128;

/// Up to this length [`put`] moves sixteen bytes at a time; beyond, the library's copy is better.
const PUT_BYTES_MAX: usize = 4096;

/// Copies `source` to `target`, which has the same length and is shared memory.
///
/// A message was often written a moment before it is sent, eight or sixteen bytes at a time. The
/// library's copy loads 64 bytes at once, first and last ones first. Such a load cannot be served out of
/// several stores in the store buffer: it waits until they have left it, and they wait behind the stores
/// of the message before, for cache lines that the reader still has. Loads as wide as the stores do not
/// wait (one way, two processors: 64 B from 45 to 95 M/s, 1000 B from 6.4 to 11 GB/s).
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn put(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "as much room as there are bytes");
    if source.len() > PUT_BYTES_MAX {
        target.copy_from_slice(source);
        return;
    }
    let (mut target, mut source) = (target, source);
    if source.len() > PUT_SHORT_BYTES_MAX {
        let (to, target_rest) = target.as_chunks_mut::<16>();
        let (from, source_rest) = source.as_chunks::<16>();
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: sixteen bytes each, of our own.
            unsafe { move_16(from.as_ptr(), to.as_mut_ptr()) };
        }
        (target, source) = (target_rest, source_rest);
    }
    let (to, target_rest) = target.as_chunks_mut::<8>();
    let (from, source_rest) = source.as_chunks::<8>();
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: eight bytes each, of our own.
        unsafe { move_8(from.as_ptr(), to.as_mut_ptr()) };
    }
    for (to, from) in target_rest.iter_mut().zip(source_rest) {
        *to = *from;
    }
}

/// Puts `source` to `target`, which is shared memory, as [`put`] does: a line of the cache or two.
///
/// # Safety
/// `target` has room for it, is mapped and writable, and does not overlap it.
#[inline(always)]
#[cfg(not(loom))]
pub(crate) unsafe fn put_short(target: *mut u8, source: &[u8]) {
    let (fours, source) = source.as_chunks::<32>();
    for (at, four) in fours.iter().enumerate() {
        // SAFETY: the caller vouches for the target; the source is 32 bytes of a slice.
        unsafe { move_4x8(four.as_ptr(), target.wrapping_add(32 * at)) };
    }
    let target = target.wrapping_add(32 * fours.len());
    let (words, rest) = source.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // SAFETY: as above, eight bytes.
        unsafe { move_8(word.as_ptr(), target.wrapping_add(8 * at)) };
    }
    let target = target.wrapping_add(8 * words.len());
    for (at, byte) in rest.iter().enumerate() {
        // SAFETY: as above, one byte.
        unsafe { move_1(byte, target.wrapping_add(at)) };
    }
}

/// Moves four times eight bytes.
///
/// # Safety
/// Both are mapped, `target` is writable and ours. The source may change meanwhile.
#[inline(always)]
#[cfg(not(loom))]
unsafe fn move_4x8(source: *const u8, target: *mut u8) {
    // SAFETY: the caller vouches for both; nothing else is touched.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {a}, [{source}]",
            "mov {b}, [{source} + 8]",
            "mov {c}, [{source} + 16]",
            "mov {d}, [{source} + 24]",
            "mov [{target}], {a}",
            "mov [{target} + 8], {b}",
            "mov [{target} + 16], {c}",
            "mov [{target} + 24], {d}",
            source = in(reg) source,
            target = in(reg) target,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "ldp {a}, {b}, [{source}]",
            "ldp {c}, {d}, [{source}, #16]",
            "stp {a}, {b}, [{target}]",
            "stp {c}, {d}, [{target}, #16]",
            source = in(reg) source,
            target = in(reg) target,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Prefetches the line at `address` to be read, if it is mapped.
#[inline(always)]
#[cfg(not(loom))]
pub(crate) fn expect_read(address: *const u8) {
    // SAFETY: a hint has no effect but on what is fetched when, wherever it points.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "prefetcht0 [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// Prefetches the first line of a value to be read.
#[inline(always)]
#[cfg(not(loom))]
pub fn expect_value<T>(value: &T) {
    expect_read(std::ptr::from_ref(value).cast());
}

/// Prefetches the line at `address` to be written.
#[inline(always)]
#[cfg(not(loom))]
pub(crate) fn expect_write(address: *const u8) {
    // SAFETY: a hint has no effect but on what is fetched when, wherever it points.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "prefetchw [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "prfm pstl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// Bytes that [`expect_writes`] speaks of.
pub const EXPECTED_BYTES: usize = 128;

/// Prefetches the first two lines of `target` to be written: the processor that has them gives them up
/// meanwhile.
///
/// A store waits for its line, and those behind it wait for it: a few dozen fill the store buffer, and then
/// everything waits. Lines that a reader has read before are asked for early, two for each message of 64 B
/// and its header, so that none is left out (IUCV one way, two processors: 64 B from 34 to 50 M/s; with one
/// line for each message one in five is left out, and nothing gained).
#[inline(always)]
pub fn expect_writes(target: &mut [u8]) {
    let start = target.as_mut_ptr();
    // SAFETY: a hint has no effect but on what is fetched when, wherever it points.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "prefetchw [{start}]",
            "prefetchw [{start} + 64]",
            start = in(reg) start,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "prfm pstl1keep, [{start}]",
            "prfm pstl1keep, [{start}, #64]",
            start = in(reg) start,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expecting_changes_nothing() {
        let mut bytes = [7; 3];
        expect_value(&bytes);
        expect_value(&());
        expect_writes(&mut bytes);
        expect_writes(&mut []);
        assert_eq!(bytes, [7; 3]);
    }

    #[test]
    fn put_copies_every_length() {
        let source: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
        for bytes in (0..300).chain([4095, 4096, 4097]) {
            let mut target = vec![0; bytes];
            put(&mut target, &source[..bytes]);
            assert_eq!(target, source[..bytes]);
        }
    }

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside_it() {
        let source: Vec<u8> = (0..5000_u32).map(|n| (n * 7 % 251) as u8 + 1).collect();
        for bytes in (0..200).chain([1000, 1023, 1024, 1025, 4096, 4097]) {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 9)] {
                let mut target = vec![0; bytes + 32];
                // SAFETY: `from + bytes <= 5000` and `to + bytes <= target.len()`.
                unsafe { copy_out(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes) };
                assert_eq!(target[to..to + bytes], source[from..from + bytes]);
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|byte| *byte == 0));
            }
        }
    }
}
