//! What commands bring: places in the cache, or bytes of their own.

use super::cache::Cache;
use super::few::Few;
use super::perform::Refusal;
use crate::format::fault::Fault;
use channel::exchange::{Broken, EXTENT_BYTES, Extent, Head, Link, flag};

/// What a command brings.
#[derive(Debug, Default)]
pub struct Output {
    /// Extents of the cache.
    extents: Few<Extent>,
    /// Bytes in a body of their own, if there are no extents.
    bytes: Vec<u8>,
}

impl Output {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.bytes.is_empty()
    }

    /// Sends it as a data unit.
    pub fn send(&self, link: &mut Link, head: Head) -> Result<(), Broken> {
        let bytes = self.extents.iter().map(Extent::bytes).sum::<u64>() + self.bytes.len() as u64;
        self.send_with(link, Head { count: bytes as u32, ..head }, &[])
    }

    /// Sends it as the body of a unit, with something behind it.
    #[inline]
    pub fn send_with(&self, link: &mut Link, mut head: Head, behind: &[u8]) -> Result<(), Broken> {
        if self.extents.is_empty() {
            if self.bytes.is_empty() || behind.is_empty() {
                let body = if self.bytes.is_empty() { behind } else { &self.bytes };
                return link.send(&head, body);
            }
            return link.send(&head, &[&self.bytes, behind].concat());
        }
        head.flags |= flag::EXTENTS;
        if behind.is_empty()
            && let Some(only) = self.extents.only()
        {
            return link.send(&head, &only.emit());
        }
        let mut body = Vec::with_capacity(self.extents.len() * EXTENT_BYTES + behind.len());
        for extent in self.extents.iter() {
            body.extend(extent.emit());
        }
        body.extend(behind);
        link.send(&head, &body)
    }

    /// Bytes that it has copied. Extents are places in the cache, and count for nothing.
    pub(super) fn copied_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds records of the cache.
    ///
    /// # Errors
    /// Overrun: they have to be copied, and these are too many bytes.
    pub(super) fn push(&mut self, extent: Extent, cache: &mut Cache) -> Result<(), Refusal> {
        if self.bytes.is_empty() {
            self.extents.push(extent);
            return Ok(());
        }
        // Bytes came first: everything has to go with them.
        self.check_room(extent.bytes())?;
        self.copy(&extent, cache);
        Ok(())
    }

    /// Bytes that lie nowhere in the cache as they are. What came before is copied too.
    ///
    /// # Errors
    /// Overrun: these are too many bytes.
    pub(super) fn push_bytes(&mut self, bytes: &[u8], cache: &mut Cache) -> Result<(), Refusal> {
        let before = self.extents.iter().map(Extent::bytes).sum::<u64>();
        self.check_room(before + bytes.len() as u64)?;
        for extent in std::mem::take(&mut self.extents).iter() {
            self.copy(extent, cache);
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    fn check_room(&self, more: u64) -> Result<(), Refusal> {
        let is_room = self.bytes.len() as u64 + more <= COPIED_BYTES_MAX as u64;
        if is_room { Ok(()) } else { Err(Fault::Overrun.into()) }
    }

    fn copy(&mut self, extent: &Extent, cache: &mut Cache) {
        for place in extent.places() {
            self.bytes.extend(slice(cache, place, extent.record_bytes as usize));
        }
    }
}

/// Bytes at most that are copied for one exchange, because they do not lie in the cache as the program wants them: whole tracks, or
/// counts and keys.
pub(super) const COPIED_BYTES_MAX: usize = 4 << 20;

/// Bytes at most that are copied for exchanges which wait for the disk before they end: of a connection, and of all. An exchange that
/// has copied more ends in overrun.
const WAITING_BYTES_MAX: usize = 16 << 20;
const ALL_WAITING_BYTES_MAX: usize = 64 << 20;

/// Whether an exchange that has copied so many bytes may not wait for the disk together with those of its connection, and of all.
pub(super) fn is_full(of_connection: usize, of_all: usize, bytes: usize) -> bool {
    of_connection + bytes > WAITING_BYTES_MAX || of_all + bytes > ALL_WAITING_BYTES_MAX
}

fn slice(cache: &mut Cache, place: u64, bytes: usize) -> &[u8] {
    cache.range(place as usize, bytes)
}

#[cfg(test)]
mod tests {
    use os::storage::StorageOptions;

    use super::*;
    use crate::ckd::model::{HEADS, TRACK_BYTES};

    #[test]
    fn bytes_that_are_copied_for_an_exchange_are_bounded() {
        let options = StorageOptions::default();
        let mut cache = Cache::new(HEADS, 4 * TRACK_BYTES, options).unwrap();
        let mut output = Output::default();
        let track = vec![7; TRACK_BYTES];
        let all = (0..).take_while(|_| output.push_bytes(&track, &mut cache).is_ok()).count();
        assert_eq!(all, COPIED_BYTES_MAX / TRACK_BYTES);
        // Extents that have to be copied count too, whichever came first.
        let extent = Extent::plain(0, 0, TRACK_BYTES as u32);
        assert_eq!(output.push(extent, &mut cache), Err(Fault::Overrun.into()));
        let mut output = Output::default();
        (0..=all).for_each(|_| output.push(extent, &mut cache).unwrap());
        assert_eq!(output.copied_bytes(), 0);
        assert_eq!(output.push_bytes(&[7], &mut cache), Err(Fault::Overrun.into()));
        assert_eq!(output.copied_bytes(), 0);
    }
}
