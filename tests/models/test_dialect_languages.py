"""Announcements of examples and of calls in other languages than English, and in English after a condition."""

from __future__ import annotations

import pytest

from callgate.models.dialects import read_text
from tests.models.dialect_texts import NOTATIONS, TOOLS, calls_in

ANNOUNCE_EXAMPLES = """\
Hier ist ein einfaches Beispiel für einen Aufruf.
Das ist ein Beispiel.
Ich zeige dir ein Beispiel:
Beispiel für eine Suche:
Zum Beispiel, um nach x zu suchen:
Voici un exemple.
Voici un petit exemple d'appel.
C'est un exemple.
Un appel ressemble à ceci :
Par exemple, pour chercher x :
Je vais te donner un exemple :
Aquí tienes un ejemplo.
Este es un ejemplo de llamada:
Una llamada se ve así:
Por ejemplo, para buscar x:
Te muestro un ejemplo:
Aqui está um exemplo de chamada.
Vou te dar um exemplo:
Ecco un esempio di chiamata.
Questo è un esempio.
Dit is een voorbeeld.
Вот пример вызова.
Приведу пример:
这是一个示例。
以下是调用示例。
我给你举个例子：
我们来看一下用法：
以下は例です：
例を示します：
If you want to search, write:
If you need to find x, just call:
""".splitlines()
ANNOUNCE_CALLS = """\
Zuerst suche ich nach einem Beispiel:
Ich sehe mir die Verwendung an.
Das Format ist unklar, ich suche:
Lass mich das Format prüfen:
Das ist kein Beispiel.
Hier ist der Aufruf:
Je vais chercher un exemple :
Je vais d'abord consulter la syntaxe :
Cherchons un exemple :
Ce n'est pas un exemple.
Voy a buscar un ejemplo:
Déjame buscar ejemplos:
Primero busco el ejemplo:
Aquí está la llamada:
Vou procurar um exemplo:
Cerco un esempio:
Devo controllare il formato:
Сейчас поищу пример:
Вот результат.
让我搜索一个例子：
我来看一下用法：
我需要查看格式：
让我查看调用方式：
这不是示例。
使い方を調べます：
If you want, I can search:
If you need x, I will use search:
""".splitlines()


@pytest.mark.parametrize("line", ANNOUNCE_EXAMPLES)
def test_a_call_after_a_sentence_that_announces_an_example_is_text(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, read_text(line + call, TOOLS).calls) == (kind, ())


@pytest.mark.parametrize("line", ANNOUNCE_CALLS)
def test_a_call_after_a_sentence_in_which_the_model_looks_for_something_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])
