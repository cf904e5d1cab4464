//! The guest's storage: programs, parameters and data to be written.

use fabric::path::View;

/// Storage that another party writes. What is read twice may be two different things: read once, check, and use the copy.
pub trait Storage {
    /// How many bytes there are. Addresses are below that.
    fn bytes(&self) -> u64;

    /// Copies bytes out. False if they are not all there; nothing is copied then.
    fn fetch(&self, address: u64, target: &mut [u8]) -> bool;

    /// Whether all of a range is there.
    fn holds(&self, address: u64, count: u64) -> bool {
        address.checked_add(count).is_some_and(|end| end <= self.bytes())
    }
}

impl Storage for View {
    fn bytes(&self) -> u64 {
        View::bytes(self) as u64
    }

    #[inline]
    fn fetch(&self, address: u64, target: &mut [u8]) -> bool {
        usize::try_from(address).is_ok_and(|address| View::read(self, address, target).is_ok())
    }
}

/// Storage of one's own, for tests and models.
impl Storage for [u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn fetch(&self, address: u64, target: &mut [u8]) -> bool {
        let end = address.checked_add(target.len() as u64);
        let Some(end) = end.filter(|end| *end <= self.len() as u64) else { return false };
        target.copy_from_slice(&self[address as usize..end as usize]);
        true
    }
}
