//! Data that was sent and is not acknowledged: when each piece was sent, what has come though something before it is missing
//! (RFC 2018), and what is taken for lost (RFC 6675, RFC 8985).

use std::cell::Cell;
use std::collections::VecDeque;

use super::is_before;

/// Pieces for which memory is kept when nothing is under way.
const KEPT: usize = 8;

/// The most pieces that are told apart, so that a segment of the other side costs no walk without end. Beyond it pieces are not divided, and no new
/// data is sent.
const PIECES_MAX: usize = 4096;

/// The most lost bytes that are looked for at once: no segment is longer.
const LOST_BYTES_MAX: u32 = 1 << 16;

/// A piece of what was sent. It begins where the one before it ends.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u32,
    /// When it was sent last.
    sent: u64,
    /// It has come, though something before it is missing.
    is_selected: bool,
    is_lost: bool,
    is_resent: bool,
}

/// The piece that stands for a number which lies in one that cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Down,
    Up,
}

/// When a piece was sent, where it ends, and how long it took to be acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    sent: u64,
    end: u32,
    round_trip_ns: u64,
}

/// When something was acknowledged, and the least time that this ever took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    pub(super) least: u64,
}

/// News of an acknowledgement about what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Bytes that have come and that nobody knew to have come.
    pub(super) bytes: u32,
    /// When what was sent last of them was sent, if it was sent once: nobody knows which of two was acknowledged (Karn).
    pub(super) sent: Option<u64>,
    /// Bytes of them that were taken for lost, and were not sent again.
    pub(super) late: u32,
}

#[derive(Debug)]
pub(super) struct Scoreboard {
    pieces: VecDeque<Piece>,
    selected: u32,
    lost: u32,
    /// None of so many first pieces is lost.
    lost_from: u32,
    /// Of those that have come, the piece that was sent last (RFC 8985 6.2, step 2).
    newest: Newest,
    /// Where what has come ends, as far as anybody has said.
    highest: Option<u32>,
    /// Set if pieces have overtaken each other (RFC 8985 6.2, step 3).
    pub(super) is_reordered: bool,
}

/// With room for one piece: a connection that asks and is answered has no more.
impl Default for Scoreboard {
    fn default() -> Scoreboard {
        Scoreboard {
            pieces: VecDeque::with_capacity(1),
            selected: 0,
            lost: 0,
            lost_from: 0,
            newest: Newest::default(),
            highest: None,
            is_reordered: false,
        }
    }
}

impl Scoreboard {
    /// Bytes under way: sent, not acknowledged in any way, and not taken for lost.
    pub(super) fn flight(&self, una: u32, nxt: u32) -> u32 {
        nxt.wrapping_sub(una).saturating_sub(self.selected + self.lost)
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns true if so many pieces are told apart that nothing new is to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES_MAX
    }

    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    pub(super) fn has_selected(&self) -> bool {
        self.selected > 0
    }

    /// Takes note that data was sent behind all else, up to this number.
    pub(super) fn push(&mut self, end: u32, now: u64) {
        match self.pieces.back_mut() {
            // What is sent together comes together, or is told apart when it does not.
            Some(last)
                if last.sent == now && !(last.is_selected || last.is_lost || last.is_resent) =>
            {
                last.end = end;
            }
            _ => {
                let piece =
                    Piece { end, sent: now, is_selected: false, is_lost: false, is_resent: false };
                self.pieces.push_back(piece);
            }
        }
    }

    /// All before `ack` has come; `una` is what was said before.
    pub(super) fn acknowledge(&mut self, una: u32, ack: u32, moment: Moment) -> News {
        let mut news = News::default();
        let (mut begin, mut has_resent) = (una, false);
        while begin != ack
            && let Some(piece) = self.pieces.front().copied()
        {
            let end = if is_before(ack, piece.end) { ack } else { piece.end };
            let bytes = end.wrapping_sub(begin);
            if piece.is_lost {
                self.lost -= bytes;
                news.late += if piece.is_resent { 0 } else { bytes };
            }
            if piece.is_selected {
                self.selected -= bytes;
            } else {
                self.note_come(Piece { end, ..piece }, bytes, moment, &mut news);
            }
            has_resent |= piece.is_resent;
            if end != piece.end {
                break;
            }
            self.pieces.pop_front();
            self.lost_from = self.lost_from.saturating_sub(1);
            begin = end;
        }
        // What lies behind one that was sent again has waited for it.
        if has_resent {
            news.sent = None;
        }
        if self.pieces.is_empty() {
            self.highest = None;
            self.pieces.shrink_to(KEPT);
        }
        news
    }

    /// A piece has come, or a part of it.
    fn note_come(&mut self, piece: Piece, bytes: u32, moment: Moment, news: &mut News) {
        news.bytes += bytes;
        if !piece.is_resent {
            news.sent = news.sent.max(Some(piece.sent));
            if self.highest.is_some_and(|highest| is_before(piece.end, highest)) {
                self.is_reordered = true;
            }
        }
        let Newest { sent, end, .. } = self.newest;
        let is_newer = sent < piece.sent || sent == piece.sent && is_before(end, piece.end);
        let round_trip_ns = moment.now.saturating_sub(piece.sent);
        // What was sent again a moment ago cannot have come yet: that is an acknowledgement of what was sent first.
        if is_newer && !(piece.is_resent && round_trip_ns < moment.least) {
            self.newest = Newest { sent: piece.sent, end: piece.end, round_trip_ns };
        }
        if self.highest.is_none_or(|highest| is_before(highest, piece.end)) {
            self.highest = Some(piece.end);
        }
    }

    /// The bytes from `begin` to `end` have come. Both lie in what is under way.
    pub(super) fn select(
        &mut self,
        una: u32,
        (begin, end): (u32, u32),
        moment: Moment,
        news: &mut News,
    ) {
        // A piece that cannot be divided has not come if a part of it has.
        let from = self.split(una, begin, Round::Up);
        let to = self.split(una, end, Round::Down);
        for at in from..to {
            let before = self.begin_of(una, at);
            let piece = &mut self.pieces[at];
            if piece.is_selected {
                continue;
            }
            let bytes = piece.end.wrapping_sub(before);
            if std::mem::take(&mut piece.is_lost) {
                self.lost -= bytes;
                news.late += if piece.is_resent { 0 } else { bytes };
            }
            piece.is_selected = true;
            let piece = *piece;
            self.selected += bytes;
            self.note_come(piece, bytes, moment, news);
        }
    }

    /// Has a piece end at this number, if there may be one piece more. Returns the index of the piece that begins there; if there is none, of the
    /// next, or of the one in which the number lies.
    fn split(&mut self, una: u32, at: u32, round: Round) -> usize {
        if !is_before(una, at) {
            return 0;
        }
        let index = self.pieces.partition_point(|piece| is_before(piece.end, at));
        let Some(piece) = self.pieces.get(index).copied() else { return index };
        if piece.end == at {
            return index + 1;
        }
        if self.is_full() {
            return index + usize::from(round == Round::Up);
        }
        self.pieces.insert(index, Piece { end: at, ..piece });
        if index < self.lost_from as usize {
            self.lost_from += 1;
        }
        index + 1
    }

    /// The number of the first byte of a piece.
    fn begin_of(&self, una: u32, index: usize) -> u32 {
        index.checked_sub(1).map_or(una, |before| self.pieces[before].end)
    }

    /// Takes for lost those of the first `count` pieces that have not come and for which this is true. Returns true if there are any.
    fn lose(&mut self, una: u32, count: usize, is_lost: impl Fn(u32, &Piece) -> bool) -> bool {
        let (mut begin, mut is_news) = (una, false);
        for (index, piece) in self.pieces.iter_mut().take(count).enumerate() {
            let bytes = piece.end.wrapping_sub(begin);
            if !piece.is_selected && !piece.is_lost && is_lost(begin, piece) {
                piece.is_lost = true;
                self.lost += bytes;
                self.lost_from = self.lost_from.min(index as u32);
                is_news = true;
            }
            begin = piece.end;
        }
        is_news
    }

    /// Takes for lost what was sent so long before something that has come that it would have come, too (RFC 8985 6.2,
    /// step 5). Whether there is something new, and when to look again.
    pub(super) fn detect(&mut self, una: u32, now: u64, window_ns: u64) -> (bool, Option<u64>) {
        let Newest { sent: newest, end: newest_end, round_trip_ns } = self.newest;
        let again = Cell::new(None);
        let is_news = self.lose(una, usize::MAX, |_, piece| {
            let is_older =
                piece.sent < newest || piece.sent == newest && is_before(piece.end, newest_end);
            let due = piece.sent.saturating_add(round_trip_ns).saturating_add(window_ns);
            if is_older && due > now {
                again.set(again.get().max(Some(due)));
            }
            is_older && due <= now
        });
        (is_news, again.get())
    }

    /// Takes nothing for lost any more.
    pub(super) fn mark_none_lost(&mut self) {
        self.pieces.iter_mut().for_each(|piece| piece.is_lost = false);
        self.lost = 0;
    }

    /// Takes for lost what was sent so long ago, and the first piece whenever it was (RFC 8985 6.3).
    pub(super) fn lose_late(&mut self, una: u32, now: u64, time: u64) {
        if self.pieces.front().is_some_and(|first| first.is_selected) {
            return self.lose_all(una);
        }
        self.lose(una, usize::MAX, |begin, piece| {
            begin == una || piece.sent.saturating_add(time) <= now
        });
    }

    /// Takes all for lost. What the other side has said to have may be thrown away if the first is among it: else it would have
    /// been acknowledged (RFC 2018 8).
    pub(super) fn lose_all(&mut self, una: u32) {
        if self.pieces.front().is_some_and(|first| first.is_selected) {
            self.selected = 0;
            self.pieces.iter_mut().for_each(|piece| piece.is_selected = false);
        }
        self.lose_first(una, u32::MAX);
    }

    /// Takes for lost so many of the first bytes, unless they have come.
    pub(super) fn lose_first(&mut self, una: u32, bytes: u32) {
        let end = self.pieces.back().map_or(una, |last| last.end);
        let bytes = bytes.min(end.wrapping_sub(una));
        let pieces = self.split(una, una.wrapping_add(bytes), Round::Up);
        self.lose(una, pieces, |_, _| true);
    }

    /// The first bytes that are taken for lost, up to where others begin, or as many as a segment may have.
    pub(super) fn first_lost(&mut self, una: u32) -> Option<(u32, u32)> {
        if self.lost == 0 {
            return None;
        }
        let from = self.lost_from as usize;
        let first = from + self.pieces.range(from..).position(|piece| piece.is_lost)?;
        self.lost_from = first as u32;
        let begin = self.begin_of(una, first);
        let mut end = begin;
        for piece in self.pieces.range(first..).take_while(|piece| piece.is_lost) {
            end = piece.end;
            if end.wrapping_sub(begin) >= LOST_BYTES_MAX {
                break;
            }
        }
        Some((begin, end))
    }

    /// These bytes, which were taken for lost, were sent again.
    pub(super) fn resend(&mut self, una: u32, (begin, end): (u32, u32), now: u64) {
        let from = self.split(una, begin, Round::Down);
        let to = self.split(una, end, Round::Up);
        for at in from..to {
            let before = self.begin_of(una, at);
            let piece = &mut self.pieces[at];
            if std::mem::take(&mut piece.is_lost) {
                self.lost -= piece.end.wrapping_sub(before);
            }
            piece.is_resent = true;
            piece.sent = now;
        }
    }

    /// Nothing was sent.
    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        (self.selected, self.lost, self.lost_from, self.highest) = (0, 0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOMENT: Moment = Moment { now: 60, least: 10 };

    fn sent(times: &[u64]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for (at, time) in times.iter().enumerate() {
            board.push(100 * (at as u32 + 1), *time);
        }
        board
    }

    #[test]
    fn what_was_sent_before_what_has_come_is_lost_after_a_while() {
        let mut board = sent(&[10, 20, 30, 40]);
        let mut news = News::default();
        board.select(0, (200, 300), Moment { now: 50, least: 10 }, &mut news);
        assert_eq!((news.bytes, news.sent), (100, Some(30)));
        assert_eq!(board.flight(0, 400), 300);
        // The first is late by now, the second is not yet.
        assert_eq!(board.detect(0, 35, 5), (true, Some(45)));
        assert_eq!((board.first_lost(0), board.flight(0, 400)), (Some((0, 100)), 200));
        board.resend(0, (0, 100), 36);
        assert_eq!((board.first_lost(0), board.flight(0, 400)), (None, 300));
        assert_eq!(board.detect(0, 45, 5), (true, None));
        assert_eq!(board.first_lost(0), Some((100, 200)));
        // It comes nevertheless: what was sent twice measures nothing.
        let news = board.acknowledge(0, 200, MOMENT);
        assert_eq!((news.bytes, news.sent), (200, None));
        assert!(board.is_reordered);
        assert_eq!(board.flight(200, 400), 100);
    }

    #[test]
    fn first_bytes_are_lost_as_far_as_they_are_under_way() {
        let mut board = sent(&[1]);
        board.lose_first(0, 30);
        assert_eq!(board.first_lost(0), Some((0, 30)));
        board.lose_first(0, 1000);
        assert_eq!(board.first_lost(0), Some((0, 100)));
        assert_eq!(board.acknowledge(0, 100, MOMENT).bytes, 100);
        board.lose_first(100, 1000);
        assert!(!board.has_lost());
    }

    #[test]
    fn other_side_that_says_each_byte_by_itself_makes_no_more_pieces_than_there_may_be() {
        let mut board = sent(&[1]);
        let bytes = 6 << 20;
        board.push(bytes, 2);
        let mut news = News::default();
        for at in (1..bytes).step_by(2).take(3 * PIECES_MAX) {
            board.select(0, (at, at + 1), MOMENT, &mut news);
        }
        assert!(board.is_full() && board.pieces() == PIECES_MAX);
        assert_eq!(news.bytes as usize, PIECES_MAX / 2 - 1);
        // What lies in one piece with others goes with them.
        board.lose_all(0);
        board.select(0, (bytes / 2, bytes), MOMENT, &mut news);
        assert_eq!(board.flight(0, bytes), 0);
        while let Some(lost) = board.first_lost(0) {
            board.resend(0, lost, 3);
        }
        assert_eq!((board.pieces(), board.flight(0, bytes)), (PIECES_MAX, bytes - news.bytes));
    }

    proptest! {
        #[test]
        fn counts_agree_with_the_pieces(
            steps in prop::collection::vec((0..6u8, 0..400u32, 1..100u32), 1..100),
        ) {
            let mut board = Scoreboard::default();
            let first = u32::MAX - 1000;
            let (mut una, mut nxt) = (first, first);
            for (now, (kind, at, bytes)) in steps.into_iter().enumerate() {
                let now = now as u64 / 2;
                let under_way = nxt.wrapping_sub(una);
                let begin = at.min(under_way);
                let end = (at + bytes).min(under_way);
                let range = (una.wrapping_add(begin), una.wrapping_add(end));
                match kind {
                    0 | 1 => {
                        nxt = nxt.wrapping_add(bytes);
                        board.push(nxt, now);
                    }
                    2 if begin < end => board.select(una, range, MOMENT, &mut News::default()),
                    3 => {
                        board.acknowledge(una, range.1, MOMENT);
                        una = range.1;
                    }
                    4 => board.lose_first(una, bytes),
                    5 => match board.first_lost(una) {
                        Some(lost) => board.resend(una, lost, now),
                        None => { board.detect(una, now, 1); }
                    },
                    _ => {}
                }
                let mut begin = una;
                let (mut selected, mut lost) = (0, 0);
                for piece in &board.pieces {
                    prop_assert!(is_before(begin, piece.end));
                    prop_assert!(!(piece.is_lost && piece.is_selected));
                    let bytes = piece.end.wrapping_sub(begin);
                    selected += if piece.is_selected { bytes } else { 0 };
                    lost += if piece.is_lost { bytes } else { 0 };
                    begin = piece.end;
                }
                let lost_pieces = board.pieces.iter().position(|piece| piece.is_lost);
                let first = lost_pieces.map(|at| board.begin_of(una, at));
                prop_assert_eq!(board.first_lost(una).map(|(begin, _)| begin), first);
                prop_assert_eq!(begin, nxt);
                prop_assert_eq!((board.selected, board.lost), (selected, lost));
            }
        }
    }
}
