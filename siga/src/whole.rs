//! Memory for what is received whole, whose length the other side says.

use fabric::path::Lack;

/// Makes `whole` as long as what is to be received.
///
/// # Errors
/// There is no memory for that; nothing is changed then.
pub(crate) fn resize(whole: &mut Vec<u8>, bytes: usize) -> Result<(), Lack> {
    let more = bytes.saturating_sub(whole.len());
    whole.try_reserve_exact(more).map_err(|_| Lack::Memory)?;
    whole.resize(bytes, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_for_memory_is_refused() {
        let mut whole = vec![1; 3];
        assert_eq!(resize(&mut whole, usize::MAX), Err(Lack::Memory));
        assert_eq!(resize(&mut whole, isize::MAX as usize), Err(Lack::Memory));
        assert_eq!(whole, [1; 3]);
        resize(&mut whole, 5).unwrap();
        assert_eq!(whole, [1, 1, 1, 0, 0]);
        resize(&mut whole, 2).unwrap();
        assert_eq!(whole, [1, 1]);
    }
}
