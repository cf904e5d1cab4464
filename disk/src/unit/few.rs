//! Lists that mostly have one.

/// Any number of values. Nothing is allocated for the first.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few { first: None, more: Vec::new() }
    }
}

impl<T> Few<T> {
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.more.push(value),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The value, if it is the only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&T> {
        self.first.as_ref().filter(|_| self.more.is_empty())
    }

    #[inline]
    pub(super) fn last(&self) -> Option<&T> {
        self.more.last().or(self.first.as_ref())
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    /// Takes off the first so many values, or all.
    pub(super) fn take_first(&mut self, count: usize) -> Vec<T> {
        if count == 0 {
            return Vec::new();
        }
        let all: Vec<T> = std::mem::take(self).into();
        let mut all = all.into_iter();
        let first = all.by_ref().take(count).collect();
        all.for_each(|value| self.push(value));
        first
    }

    /// Takes off all values but the first so many.
    pub(super) fn split_off(&mut self, len: usize) -> Vec<T> {
        match len.checked_sub(1) {
            Some(more) => self.more.split_off(more),
            None => std::mem::take(self).into(),
        }
    }
}

impl<T> From<Few<T>> for Vec<T> {
    fn from(few: Few<T>) -> Vec<T> {
        few.first.into_iter().chain(few.more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_there_in_order() {
        for len in 0..4 {
            for kept in 0..=len {
                let mut few = Few::default();
                (0..len).for_each(|value| few.push(value));
                assert_eq!((few.len(), few.is_empty()), (len, len == 0));
                assert_eq!(
                    (few.last().copied(), few.only().copied()),
                    match len {
                        0 => (None, None),
                        1 => (Some(0), Some(0)),
                        _ => (Some(len - 1), None),
                    }
                );
                assert_eq!(few.split_off(kept), (kept..len).collect::<Vec<_>>());
                assert!(few.iter().copied().eq(0..kept));
            }
        }
    }
}
