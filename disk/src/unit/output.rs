//! What commands bring: places in the cache, or bytes of their own.

use super::cache::Cache;
use super::few::Few;
use super::perform::Refusal;
use crate::exchange::{Broken, EXTENT_BYTES, Extent, Head, Link, flag};
use crate::format::sense::Fault;

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

    /// Adds records of the cache.
    pub(super) fn push(&mut self, extent: Extent, cache: &mut Cache) {
        if !self.bytes.is_empty() {
            // Bytes came first: everything has to go with them.
            for place in extent.places() {
                self.bytes.extend(slice(cache, place, extent.record_bytes as usize));
            }
            return;
        }
        self.extents.push(extent);
    }

    /// Bytes that lie nowhere in the cache as they are. What came before is copied too.
    pub(super) fn push_bytes(&mut self, bytes: &[u8], cache: &mut Cache) -> Result<(), Refusal> {
        if self.bytes.len() + bytes.len() > COPIED_BYTES_MAX {
            return Err(Fault::Overrun.into());
        }
        let extents = std::mem::take(&mut self.extents);
        for extent in extents.iter() {
            for place in extent.places() {
                self.bytes.extend(slice(cache, place, extent.record_bytes as usize));
            }
        }
        self.bytes.extend(bytes);
        Ok(())
    }
}

/// Bytes at most that are copied for one exchange, because they do not lie in the cache as the program wants them: whole tracks, or
/// counts and keys. They pin nothing, so nothing else bounds them.
const COPIED_BYTES_MAX: usize = 4 << 20;

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
        assert!(output.bytes.len() <= COPIED_BYTES_MAX);
    }
}
