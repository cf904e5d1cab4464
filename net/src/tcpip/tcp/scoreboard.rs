//! What was sent and is not acknowledged: when each piece was sent, what has come though something before it is missing
//! (RFC 2018), and what is taken for lost (RFC 6675, RFC 8985).

use std::collections::VecDeque;

use super::is_before;

/// Pieces for which memory is kept when nothing is under way.
const KEPT: usize = 8;

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

/// When a piece was sent, where it ends, and how long it took to be acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    sent: u64,
    end: u32,
    round_trip: u64,
}

/// When something was acknowledged, and the least time that this ever took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    pub(super) least: u64,
}

/// What an acknowledgement says of what was sent.
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
    /// Of those that have come, the piece that was sent last (RFC 8985 6.2, step 2).
    newest: Newest,
    /// Where what has come ends, as far as anybody has said.
    highest: Option<u32>,
    /// Whether pieces have overtaken each other (RFC 8985 6.2, step 3).
    pub(super) is_reordered: bool,
}

/// With room for one piece: a connection that asks and is answered has no more.
impl Default for Scoreboard {
    fn default() -> Scoreboard {
        Scoreboard {
            pieces: VecDeque::with_capacity(1),
            selected: 0,
            lost: 0,
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

    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    pub(super) fn has_selected(&self) -> bool {
        self.selected > 0
    }

    /// What ends here was sent, behind all else.
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
        let round_trip = moment.now.saturating_sub(piece.sent);
        // What was sent again a moment ago cannot have come yet: that is an acknowledgement of what was sent first.
        if is_newer && !(piece.is_resent && round_trip < moment.least) {
            self.newest = Newest { sent: piece.sent, end: piece.end, round_trip };
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
        let from = self.split(una, begin);
        let to = self.split(una, end);
        for at in from..to {
            let before = if at == 0 { una } else { self.pieces[at - 1].end };
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

    /// Has a piece end at this number. Which piece begins there.
    fn split(&mut self, una: u32, at: u32) -> usize {
        if !is_before(una, at) {
            return 0;
        }
        let number = self.pieces.iter().position(|piece| !is_before(piece.end, at));
        let Some(number) = number else { return self.pieces.len() };
        let piece = self.pieces[number];
        if piece.end != at {
            self.pieces.insert(number, Piece { end: at, ..piece });
        }
        number + 1
    }

    /// Takes for lost what was sent so long before something that has come that it would have come, too (RFC 8985 6.2,
    /// step 5). Whether there is something new, and when to look again.
    pub(super) fn detect(&mut self, una: u32, now: u64, patience: u64) -> (bool, Option<u64>) {
        let Newest { sent: newest, end: newest_end, round_trip } = self.newest;
        let (mut is_news, mut again) = (false, None);
        let mut begin = una;
        for piece in &mut self.pieces {
            let bytes = piece.end.wrapping_sub(begin);
            begin = piece.end;
            let is_older =
                piece.sent < newest || piece.sent == newest && is_before(piece.end, newest_end);
            if piece.is_selected || piece.is_lost || !is_older {
                continue;
            }
            let due = piece.sent.saturating_add(round_trip).saturating_add(patience);
            if due <= now {
                piece.is_lost = true;
                self.lost += bytes;
                is_news = true;
            } else {
                again = again.max(Some(due));
            }
        }
        (is_news, again)
    }

    /// Nothing is lost.
    pub(super) fn find_all(&mut self) {
        self.pieces.iter_mut().for_each(|piece| piece.is_lost = false);
        self.lost = 0;
    }

    /// Takes for lost what was sent so long ago, and the first piece whenever it was (RFC 8985 6.3).
    pub(super) fn lose_late(&mut self, una: u32, now: u64, time: u64) {
        if self.pieces.front().is_some_and(|first| first.is_selected) {
            return self.lose_all(una);
        }
        let mut begin = una;
        for piece in &mut self.pieces {
            let bytes = piece.end.wrapping_sub(begin);
            let is_late = begin == una || piece.sent.saturating_add(time) <= now;
            begin = piece.end;
            if is_late && !piece.is_selected && !std::mem::replace(&mut piece.is_lost, true) {
                self.lost += bytes;
            }
        }
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
        let pieces = self.split(una, una.wrapping_add(bytes));
        let mut begin = una;
        for piece in self.pieces.iter_mut().take(pieces) {
            let bytes = piece.end.wrapping_sub(begin);
            begin = piece.end;
            if !piece.is_selected && !std::mem::replace(&mut piece.is_lost, true) {
                self.lost += bytes;
            }
        }
    }

    /// The first bytes that are taken for lost, up to where others begin.
    pub(super) fn first_lost(&self, una: u32) -> Option<(u32, u32)> {
        if self.lost == 0 {
            return None;
        }
        let mut begin = una;
        let mut found: Option<(u32, u32)> = None;
        for piece in &self.pieces {
            match &mut found {
                Some((_, end)) if piece.is_lost => *end = piece.end,
                Some(_) => break,
                None if piece.is_lost => found = Some((begin, piece.end)),
                None => {}
            }
            begin = piece.end;
        }
        found
    }

    /// These bytes, which were taken for lost, were sent again.
    pub(super) fn resend(&mut self, una: u32, (begin, end): (u32, u32), now: u64) {
        let from = self.split(una, begin);
        let to = self.split(una, end);
        for at in from..to {
            let before = if at == 0 { una } else { self.pieces[at - 1].end };
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
        (self.selected, self.lost, self.highest) = (0, 0, None);
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
                prop_assert_eq!(begin, nxt);
                prop_assert_eq!((board.selected, board.lost), (selected, lost));
            }
        }
    }
}
