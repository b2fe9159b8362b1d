from runcontract.contract.states import ACTIVE, ARROWS, TERMINAL, State


def test_each_state_is_either_active_or_terminal() -> None:
    assert {*ACTIVE, *TERMINAL} == set(State)
    assert not {*ACTIVE} & {*TERMINAL}


def test_each_arrow_has_a_sentence_and_leaves_a_state() -> None:
    for move, (sources, targets, sentence) in ARROWS.items():
        assert sources, move
        assert targets, move
        assert sentence.endswith("."), move


def test_nothing_leaves_success_and_only_redo_leaves_failure() -> None:
    leaving = {move: sources for move, (sources, _, _) in ARROWS.items()}
    assert not [move for move, sources in leaving.items() if State.SUCCEEDED in sources]
    assert [move for move, sources in leaving.items() if State.FAILED in sources] == ["redo"]
