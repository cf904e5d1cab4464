//! Room behind the last byte, in all buffers that it takes at once: a program reads into them by one call of the system.

use std::io::IoSliceMut;

use super::{BUFFER_BYTES, Buffers, Chain, Purpose};

/// Pieces of room at once, at most.
const PIECES_MAX: usize = 16;

impl Chain {
    /// Gives free space behind the last byte to `fill`, in pieces: no more than makes `bytes_max` in all. `fill` returns how many bytes it has put
    /// there. None if there is no space.
    pub(in crate::tcpip) fn fill(
        &mut self,
        bytes_max: usize,
        pool: &mut Buffers,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> Option<usize> {
        let begin = self.start as usize + self.len();
        let first = begin / BUFFER_BYTES;
        let wanted =
            (begin + bytes_max.saturating_sub(self.len())).min((first + PIECES_MAX) * BUFFER_BYTES);
        let mut end = begin;
        while end < wanted && self.buffer(end / BUFFER_BYTES, Purpose::Sending, pool).is_some() {
            end = wanted.min((end / BUFFER_BYTES + 1) * BUFFER_BYTES);
        }
        if end == begin {
            return None;
        }
        let buffers = [&mut self.buffers.first].into_iter().chain(&mut self.buffers.rest);
        let mut pieces: [_; PIECES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for (number, buffer) in buffers.enumerate().skip(first) {
            let at = number * BUFFER_BYTES;
            if at >= end {
                break;
            }
            if let Some(buffer) = buffer {
                let space = &mut buffer[begin.saturating_sub(at)..BUFFER_BYTES.min(end - at)];
                pieces[count] = IoSliceMut::new(space);
                count += 1;
            }
        }
        let filled = fill(&mut pieces[..count]).min(end - begin);
        self.advance(filled);
        self.trim(pool);
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_in_as_many_pieces_as_it_takes_and_what_is_not_filled_is_given_back() {
        let mut pool = Buffers::new(8 * BUFFER_BYTES, 0);
        let owner = pool.enter([10, 1, 0, 1].into());
        let mut chain = Chain::new(owner, true);
        let mut fill = |chain: &mut Chain, bytes_max, bytes: usize| {
            let mut lengths = Vec::new();
            let filled = chain.fill(bytes_max, &mut pool, |pieces| {
                lengths.extend(pieces.iter().map(|piece| piece.len()));
                let mut left = bytes;
                for piece in pieces {
                    let count = piece.len().min(left);
                    piece[..count].fill(left as u8);
                    left -= count;
                }
                bytes
            });
            (lengths, filled, pool.usage().in_use)
        };
        assert_eq!(fill(&mut chain, 100, 0), (vec![100], Some(0), 0));
        assert_eq!(fill(&mut chain, 100, 60), (vec![100], Some(60), 1));
        let more = vec![BUFFER_BYTES - 60, BUFFER_BYTES, 10];
        let bytes_max = 2 * BUFFER_BYTES + 10;
        assert_eq!(fill(&mut chain, bytes_max, BUFFER_BYTES), (more, Some(BUFFER_BYTES), 2));
        let rest = vec![BUFFER_BYTES - 60];
        assert_eq!(fill(&mut chain, 2 * BUFFER_BYTES, 1 << 20), (rest, Some(BUFFER_BYTES - 60), 2));
        assert_eq!(fill(&mut chain, 2 * BUFFER_BYTES, 1), (vec![], None, 2));
        // One owner may not have all.
        assert_eq!(fill(&mut chain, usize::MAX / 2, 0).0.iter().sum::<usize>(), BUFFER_BYTES);
        chain.clear(&mut pool);
        assert_eq!(pool.usage().in_use, 0);
    }
}
