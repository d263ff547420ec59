"""The people of the corpus: first names that users and story heroes carry."""

from serve_app.demo.corpus.chat import listed

NAMES = listed("""
Anna, Ben, Clara, David, Emma, Felix, Grace, Henry, Ida, Jack, Kate, Leo, Mia, Noah, Olivia, Paul,
Rosa, Sam, Tina, Victor, Wendy, Yara, Zoe, Adam, Bella, Carl, Daisy, Eric, Fiona, George, Hannah,
Ivan, Julia, Kevin, Laura, Max, Nina, Oscar, Peter, Ruth, Simon, Tom, Uma, Vera, Will, Alice, Bob,
Charlie, Diana, Ethan, Frank, Gina, Hugo, Iris, James, Karen, Liam, Maria, Nora, Omar, Pia, Robert,
Sarah, Thomas, Ursula, Vincent, Walter, Amir, Bruno, Cora, Dan, Elena, Farid, Greta, Hiro, Inga,
Jonas, Klara, Lena, Mark, Nadia, Otto, Priya, Quinn, Rita, Stefan, Theo, Viktor, Yuki, Zara, Alex,
John, Jane, Mary, Michael, Linda, Susan, Lisa, Kim, Chris, Sophie, Lucas, Lily, Ella, Jan, Ali,
Fatima, Chen, Wei, Ravi, Anita, Marco, Lucia, Pedro, Carmen, Igor, Olga, Sven, Astrid, Pierre,
Marie, Luigi, Kofi, Amara, Tariq, Leila, Jin, Mei, Andy, Steve, Bill, Joe, Mike, Nick, Tim, Amy
""")
