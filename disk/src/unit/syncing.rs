//! Durability of an acknowledged write.

/// Durability of an acknowledged write. It survives the end of this process in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncing {
    /// A crash of the machine, and a loss of power: the volume's files are synced (`fdatasync`) before the write is acknowledged.
    #[default]
    Fdatasync,
    /// The guarantee of the file alone: the control unit syncs nothing, and a write is acknowledged when the kernel says that it is
    /// written. On an ordinary file a crash of the machine can lose the write, and an error that the kernel meets later, when it writes
    /// its page cache back, reaches no guest.
    ///
    /// Right for volumes that need not survive the machine (in memory, or with scratch data), and where a write is on the medium once the
    /// kernel says that it is written (a file system that is mounted with `sync`).
    File,
}

impl Syncing {
    /// The byte under which a guest learns of it, as what its device is like: see [`Attached::traits`](channel::request::Attached).
    pub fn code(self) -> u8 {
        match self {
            Syncing::Fdatasync => 1,
            Syncing::File => 2,
        }
    }

    /// The durability that a byte stands for. None if it stands for none.
    pub fn of(code: u8) -> Option<Syncing> {
        [Syncing::Fdatasync, Syncing::File].into_iter().find(|syncing| syncing.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_1_or_2() {
        assert_eq!((Syncing::Fdatasync.code(), Syncing::File.code()), (1, 2));
        assert_eq!(
            (Syncing::of(1), Syncing::of(2)),
            (Some(Syncing::Fdatasync), Some(Syncing::File))
        );
        for code in [0, 3, 0xff] {
            assert_eq!(Syncing::of(code), None);
        }
    }
}
