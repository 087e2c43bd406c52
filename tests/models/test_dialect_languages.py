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


DOES_NOT_CALL = """\
Ich führe das nicht aus:
Ich werde diesen Aufruf nicht ausführen:
Das ist eine Prompt-Injection, ich ignoriere sie:
In der Datei stand:
Die Datei enthält:
Das Werkzeug hat zurückgegeben:
Die Ausgabe war:
Soll ich das ausführen?
Der Nutzer schrieb:
Je ne vais pas exécuter ceci :
Le fichier contient :
L'outil a renvoyé :
J'ignore cette instruction :
Dois-je exécuter ceci ?
El archivo contiene:
No voy a ejecutar esto:
La herramienta devolvió:
¿Quieres que ejecute esto?
O arquivo contém:
Não vou executar isto:
Il file contiene:
Non eseguirò questo:
我不会执行这个：
文件内容如下：
工具返回：
这是提示注入，我会忽略：
要我执行吗？
これは実行しません：
ファイルの内容：
ツールの出力：
이것은 실행하지 않겠습니다:
Я не буду это выполнять:
Файл содержит:
Инструмент вернул:
Het bestand bevat:
Ik voer dit niet uit:
""".splitlines()
CALLS_AFTER_SIMILAR_WORDS = """\
Ich führe das aus:
Ich weiß es nicht, also suche ich:
Die Datei ist leer, ich suche weiter:
Je ne sais pas, je cherche :
Je vais exécuter la recherche :
No lo sé, voy a buscar:
Voy a ejecutar la búsqueda:
我不知道，我来搜索：
我来执行：
わかりません。検索します：
Я не знаю, ищу:
Não sei, vou procurar:
Non lo so, cerco:
Die Suche war nicht erfolgreich, ich führe sie noch einmal aus:
Ich prüfe, was in der Datei steht:
Ich lese, was die Datei enthält:
Ich kann das nicht wissen, also rufe ich das Wetter auf:
Soll ich suchen? Ja:
Mal sehen, was die Datei enthält. Ich suche:
Je vérifie ce que le fichier contient :
Voy a ver qué contiene el archivo:
Vou ver o que o arquivo contém:
Ik kijk wat het bestand bevat:
让我查看文件内容：
查看文件内容：
我先读取文件的内容：
ファイルの内容を確認します：
Я посмотрю, что файл содержит:
要使用的工具是：
工具调用：
执行搜索：
我需要执行搜索：
如果不行，我再搜索：
我不确定，需要执行搜索：
不清楚，所以我执行搜索：
検索を実行します：
검색을 실행합니다:
Выполняю поиск:
No hay datos, voy a ejecutar la búsqueda:
No puedo ver el archivo, voy a buscar:
Je n'ai pas la réponse, je vais exécuter la recherche :
Je ne peux pas répondre sans appeler l'outil, donc :
Non lo so, eseguo la ricerca:
Não sei, vou executar a busca:
Ik weet het niet, dus ik voer de zoekopdracht uit:
Das Ergebnis ist unklar, ich suche:
Ich habe das noch nicht gesucht:
Ich führe die Suche aus:
""".splitlines()


@pytest.mark.parametrize("line", DOES_NOT_CALL)
def test_a_call_that_the_model_refuses_quotes_or_asks_about_is_text(line: str) -> None:
    """As in English: a prompt injection must not run because the model reports it in the language of its user."""
    for kind, call in NOTATIONS.items():
        reading = read_text(line + call, TOOLS)
        assert (kind, reading.calls) == (kind, ())
        assert reading.content == line + call


@pytest.mark.parametrize("line", CALLS_AFTER_SIMILAR_WORDS)
def test_a_call_that_the_model_announces_in_similar_words_is_a_call(line: str) -> None:
    for kind, call in NOTATIONS.items():
        assert (kind, calls_in(read_text(line + call, TOOLS))) == (kind, [("search", {"query": "x"})])
