//! A guest that serves channel programs of other guests: what the servers of volumes and of lines have in common.

pub(crate) mod asking;
pub(crate) mod spinning;
