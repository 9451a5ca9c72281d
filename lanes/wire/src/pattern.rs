//! NATS matching of dotted patterns: `*` is one token, `>` is one or more and stands last.
//! Owns the algebra (match, cover, overlap); must not know what the tokens mean.

/// Whether `filter` matches the literal `subject`. Malformed text on either side (an empty token, a `>` that is not
/// last) matches nothing.
pub(crate) fn matches(filter: &str, subject: &str) -> bool {
    !subject.split('.').any(str::is_empty) && is_well_formed(filter) && matches_well_formed(filter, subject)
}

/// As [`matches`], for a filter and a subject that are known to be well-formed.
pub(crate) fn matches_well_formed(filter: &str, subject: &str) -> bool {
    let mut subject_tokens = subject.split('.');
    for wanted in filter.split('.') {
        let Some(token) = subject_tokens.next() else { return false };
        if wanted == ">" {
            return true;
        }
        if wanted != "*" && wanted != token {
            return false;
        }
    }
    subject_tokens.next().is_none()
}

fn is_well_formed(filter: &str) -> bool {
    let body = filter.strip_suffix('>').filter(|rest| rest.is_empty() || rest.ends_with('.'));
    let body = body.map_or(filter, |rest| rest.strip_suffix('.').unwrap_or("_"));
    body.split('.').all(|token| !token.is_empty() && token != ">")
}

/// Whether everything that the well-formed pattern `inner` matches is matched by the well-formed pattern `outer`.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    let mut inner_tokens = inner.split('.');
    for wanted in outer.split('.') {
        let Some(token) = inner_tokens.next() else { return false };
        if wanted == ">" {
            return true;
        }
        // A tail in `inner` has no fixed length, so nothing but a tail covers it; a `*` is not covered by a literal.
        let covered = if wanted == "*" { token != ">" } else { wanted == token };
        if !covered {
            return false;
        }
    }
    inner_tokens.next().is_none()
}

/// Whether some literal subject is matched by both well-formed patterns.
pub(crate) fn overlaps(left: &str, right: &str) -> bool {
    let (mut left_tokens, mut right_tokens) = (left.split('.'), right.split('.'));
    loop {
        match (left_tokens.next(), right_tokens.next()) {
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) => {
                if a != "*" && b != "*" && a != b {
                    return false;
                }
            }
        }
    }
}
