//! Integer expressions over symbols: extents, strides and bounds of a signature.

use crate::plan::Slots;
use std::iter::Peekable;
use std::str::Chars;

/// A compiled expression: operations on a stack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    operations: Box<[Operation]>,
    /// As it was written.
    pub(crate) text: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Constant(i64),
    /// The value of a slot.
    Load(usize),
    Add,
    Subtract,
    Multiply,
    /// Rounds down.
    Divide,
    Negate,
}

/// The deepest stack of an expression.
const DEPTH: usize = 16;

impl Expression {
    /// Compiles `text`: integers, names, `+ - * //`, parentheses. `slot` finds the slot of a name.
    pub(crate) fn compile(
        text: &str,
        slot: &mut dyn FnMut(&str) -> Result<usize, String>,
    ) -> Result<Self, String> {
        let mut parser = Parser { rest: text.chars().peekable(), slot, operations: Vec::new(), nesting: 0 };
        parser.sum()?;
        if let Some(found) = parser.peek() {
            return Err(format!("unexpected {found:?} in the expression {text:?}"));
        }
        let depth = depth(&parser.operations);
        if depth > DEPTH {
            return Err(format!("the expression {text:?} is nested too deeply"));
        }
        Ok(Self { operations: parser.operations.into(), text: text.into() })
    }

    /// The value; `None` if it overflows 64 bits or divides by 0.
    #[inline]
    pub(crate) fn value(&self, slots: &Slots<'_>) -> Option<i64> {
        match *self.operations {
            [Operation::Constant(value)] => Some(value),
            [Operation::Load(slot)] => Some(slots.integer(slot)),
            _ => self.computed(slots),
        }
    }

    fn computed(&self, slots: &Slots<'_>) -> Option<i64> {
        let mut stack = [0i64; DEPTH];
        let mut top = 0;
        for operation in &self.operations {
            match *operation {
                Operation::Constant(value) => (stack[top], top) = (value, top + 1),
                Operation::Load(slot) => (stack[top], top) = (slots.integer(slot), top + 1),
                Operation::Negate => stack[top - 1] = stack[top - 1].checked_neg()?,
                binary => {
                    let (left, right) = (stack[top - 2], stack[top - 1]);
                    top -= 1;
                    stack[top - 1] = match binary {
                        Operation::Add => left.checked_add(right)?,
                        Operation::Subtract => left.checked_sub(right)?,
                        Operation::Multiply => left.checked_mul(right)?,
                        _ => {
                            let quotient = left.checked_div(right)?;
                            let is_below = left % right != 0 && (left < 0) != (right < 0);
                            quotient - i64::from(is_below)
                        }
                    };
                }
            }
        }
        Some(stack[0])
    }
}

/// How many values the operations have on the stack at most.
fn depth(operations: &[Operation]) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for operation in operations {
        match operation {
            Operation::Constant(_) | Operation::Load(_) => now += 1,
            Operation::Negate => {}
            _ => now -= 1,
        }
        most = most.max(now);
    }
    most
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    slot: &'a mut dyn FnMut(&str) -> Result<usize, String>,
    operations: Vec<Operation>,
    nesting: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn take(&mut self, c: char) -> bool {
        self.peek() == Some(c) && self.rest.next().is_some()
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        loop {
            let operation = match self.peek() {
                Some('+') => Operation::Add,
                Some('-') => Operation::Subtract,
                _ => return Ok(()),
            };
            self.rest.next();
            self.product()?;
            self.operations.push(operation);
        }
    }

    fn product(&mut self) -> Result<(), String> {
        self.factor()?;
        loop {
            let operation = match self.peek() {
                Some('*') => Operation::Multiply,
                Some('/') => {
                    self.rest.next();
                    Operation::Divide
                }
                _ => return Ok(()),
            };
            let is_complete = operation != Operation::Divide || self.rest.peek() == Some(&'/');
            self.rest.next();
            if !is_complete {
                return Err("only // divides integers".into());
            }
            self.factor()?;
            self.operations.push(operation);
        }
    }

    fn factor(&mut self) -> Result<(), String> {
        self.nesting += 1;
        // Bounds the recursion.
        if self.nesting > 64 {
            return Err("an expression is nested too deeply".into());
        }
        let result = self.unnested_factor();
        self.nesting -= 1;
        result
    }

    fn unnested_factor(&mut self) -> Result<(), String> {
        let word = |c: &char| c.is_alphanumeric() || *c == '_';
        match self.peek() {
            Some('-') => {
                self.rest.next();
                self.factor()?;
                self.operations.push(Operation::Negate);
            }
            Some('(') => {
                self.rest.next();
                self.sum()?;
                if !self.take(')') {
                    return Err("a parenthesis is not closed".into());
                }
            }
            Some(c) if word(&c) => {
                let mut text = String::new();
                while let Some(c) = self.rest.next_if(word) {
                    text.push(c);
                }
                self.operations.push(match text.parse() {
                    Ok(value) => Operation::Constant(value),
                    Err(_) if c.is_ascii_digit() => return Err(format!("{text:?} is no 64-bit integer")),
                    Err(_) => Operation::Load((self.slot)(&text)?),
                });
            }
            Some(c) => return Err(format!("unexpected {c:?} in an expression")),
            None => return Err("an expression ends too early".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Result<Expression, String> {
        Expression::compile(text, &mut |name| match name {
            "n" => Ok(0),
            "m" => Ok(1),
            _ => Err(format!("no symbol {name}")),
        })
    }

    #[test]
    fn expressions_follow_the_usual_precedence() {
        let mut words = [7u64, -3i64 as u64];
        let slots = Slots::new(&mut words);
        let value = |text: &str| compile(text).unwrap().value(&slots);
        assert_eq!(value("n"), Some(7));
        assert_eq!(value("2*n + m*(n-1) - -1"), Some(-3));
        assert_eq!(value("n//2"), Some(3));
        assert_eq!(value("m//2"), Some(-2));
        assert_eq!(value("n//(m+3)"), None);
        assert_eq!(value("9223372036854775807*n"), None);
    }

    #[test]
    fn wrong_expressions_are_refused() {
        let deep = "(".repeat(10_000);
        let right = format!("{}1{}", "1+(".repeat(40), ")".repeat(40));
        for text in ["", "n+", "(n", "n)", "n/2", "k", "12n", "n %2", "9223372036854775808", &deep, &right] {
            assert!(compile(text).is_err(), "{text}");
        }
    }
}
