//! The guest's side: programs in its storage.
//!
//! | module | what it is |
//! |---|---|
//! | [`blocks`] | programs that read and write blocks, in both modes |
//! | [`tracks`] | programs that read and write whole tracks, in both modes |

pub mod blocks;
pub mod tracks;
