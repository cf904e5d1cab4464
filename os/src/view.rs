//! A file of this process, mapped for reading.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::copy::copy_out;
use crate::mapping::{Access, Mapping};
use crate::storage::OutOfRange;

/// A file, mapped for reading with the pages of the page cache: a read copies from them, and the kernel takes part in the first
/// read of each page only.
///
/// Whoever makes the file shorter while it is mapped ends this process with SIGBUS at the next read behind its new end: it is for
/// files that nobody else has.
#[derive(Debug)]
pub struct FileView {
    mapping: Mapping,
}

impl FileView {
    /// Maps all of a file.
    ///
    /// # Errors
    /// What the kernel says; [`io::ErrorKind::InvalidInput`] for an empty file.
    pub fn of(file: &File) -> io::Result<FileView> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Ok(FileView { mapping: Mapping::shared(file.as_fd(), bytes, Access::ReadOnly)? })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Copies bytes out, each read once.
    ///
    /// # Errors
    /// [`OutOfRange`] if the range is not within the file; nothing is copied then.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), OutOfRange> {
        if offset > self.bytes() || target.len() > self.bytes() - offset {
            return Err(OutOfRange);
        }
        // SAFETY: the range is within the mapping, checked above.
        let source = unsafe { self.mapping.base().add(offset) };
        // SAFETY: the source is mapped while `self` lives, the target is a slice of ours, and safe code has no slice of the
        // mapping.
        unsafe { copy_out(source.as_ptr(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn file_is_read_where_it_is_mapped() {
        let path = std::env::temp_dir().join(format!("siga-view-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(FileView::of(&file).is_err(), "it is empty");
        file.write_all(b"0123456789").unwrap();
        let view = FileView::of(&file).unwrap();
        let mut found = [0; 4];
        view.read(6, &mut found).unwrap();
        assert_eq!((&found, view.bytes()), (b"6789", 10));
        for (offset, count) in [(7, 4), (11, 0), (usize::MAX, 1)] {
            assert_eq!(view.read(offset, &mut [0; 4][..count]), Err(OutOfRange), "{offset}");
        }
    }
}
