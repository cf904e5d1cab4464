//! The guest's side: programs in its storage, and what became of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | a guest's end of its path to a channel |
//! | [`blocks`] | programs that read and write blocks, in both modes |
//! | [`tracks`] | programs that read and write whole tracks, in both modes |

pub mod blocks;
pub mod client;
pub mod tracks;
